"""Whole graphs of commands, run as a person would: a supervisor process, a runner, real repositories."""

from sandbox_supervisor.protocol.flow import (
    Approval,
    ArtefactRule,
    Changes,
    Command,
    Condition,
    Join,
    JoinRule,
    Merge,
    Node,
    NodeKind,
    OnConflict,
    Operator,
    Retry,
    Timeout,
)
from sandbox_supervisor.protocol.states import FailureClass
from tests.supervisor.engine.scenario import BRANCH, command, deliver, keeping

NUMBER = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


def test_parallel_work_is_merged_checked_signed_off_and_kept_as_the_task_branch(sandbox):
    box = sandbox(
        [
            keeping("one", "echo one > one.txt"),
            keeping("two", "echo two > two.txt"),
            command("tests", "cat one.txt two.txt", "one", "two"),
            Node(
                key="sign-off", kind=NodeKind.APPROVAL, needs=("tests",), approval=Approval(question="Go?", timeout=60)
            ),
            deliver("sign-off"),
        ],
        [command("cleanup", "echo bye")],
    )
    ran = box.run()
    assert ran.code == 0, ran.errors
    assert [box.file(BRANCH, name) for name in ("one.txt", "two.txt", "value.txt")] == ["one", "two", "1"]
    assert box.git("merge-base", "--is-ancestor", box.spec.repository.base_commit, BRANCH) == ""
    assert ran.outcome("cleanup") == "succeeded"
    assert box.verify().startswith("sound")
    assert box.wait_empty() == []


def test_a_failing_command_fails_the_graph_and_makes_its_dependants_unreachable(sandbox):
    ran = sandbox(
        [command("bad", "echo no >&2; exit 3"), command("after", "true", "bad")], [command("bye", "true")]
    ).run()
    assert ran.code == 1
    assert (ran.outcome("bad"), ran.outcome("after"), ran.outcome("bye")) == ("failed", "unreachable", "succeeded")


def test_nothing_to_deliver_is_a_success_without_a_branch(sandbox):
    box = sandbox([command("look", "echo changed > value.txt"), deliver("look")])
    ran = box.run()
    assert ran.code == 0
    assert ran.said("nothing_to_deliver")
    assert box.git("for-each-ref", f"refs/heads/{BRANCH}") == ""


def test_a_retry_starts_from_the_base_and_not_from_what_failed(sandbox):
    script = 'test ! -e left; case "$CAISSON_ATTEMPT" in *.1) touch left; exit 1;; esac; echo 2 > value.txt'
    retry = Retry(limit=1, on=(FailureClass.CHECK_FAILED,), backoff=0.1)
    box = sandbox([keeping("flaky", script, retry=retry)])
    ran = box.run()
    assert ran.attempts("flaky") == {"flaky.1.1": "failed", "flaky.1.2": "succeeded"}
    assert box.git("ls-tree", "--name-only", "refs/attempts/flaky/1/1-wip").split() == [
        "README.md",
        "left",
        "value.txt",
    ]
    assert box.git("ls-tree", "--name-only", "refs/attempts/flaky/1/2").split() == ["README.md", "value.txt"]


def test_results_reach_later_templates_and_conditions(sandbox):
    box = sandbox(
        [
            command("measure", "echo '{\"n\": 3}' > $CAISSON_RESULT", options={"result": NUMBER}),
            keeping("use", "echo {{ nodes.measure.result.n }} > value.txt", "measure"),
            command(
                "never",
                "exit 1",
                "measure",
                when=(Condition(reference="measure.result.n", operator=Operator.GT, value=3),),
            ),
        ]
    )
    ran = box.run()
    assert ran.code == 0
    assert box.file("refs/attempts/use/1/1", "value.txt") == "3"
    assert ran.outcome("never") == "skipped"


def test_a_result_that_does_not_fit_its_schema_fails_the_check(sandbox):
    ran = sandbox([command("measure", 'echo \'{"n": "x"}\' > $CAISSON_RESULT', options={"result": NUMBER})]).run()
    assert ran.said("result_invalid")


def test_a_missing_result_and_one_that_is_no_json_are_told_apart(sandbox):
    ran = sandbox(
        [
            command("none", "true", options={"result": NUMBER}),
            command("nonsense", "echo {{ '{{' }} > $CAISSON_RESULT", options={"result": NUMBER}),
        ]
    ).run()
    assert ran.said("result_missing")
    assert ran.said("result_malformed")


def test_a_template_without_its_value_fails_the_attempt_and_names_it(sandbox):
    ran = sandbox([command("bad", "echo {{ nodes.nobody.result }}")]).run()
    assert ran.said("template_failed")
    assert ran.said("nobody")


def test_conflicting_results_fail_the_node_that_needs_both_and_name_the_file(sandbox):
    ran = sandbox(
        [
            keeping("one", "echo one > value.txt"),
            keeping("two", "echo two > value.txt"),
            command("both", "true", "one", "two"),
        ]
    ).run()
    assert ran.code == 1
    assert ran.said("merge_conflict")
    assert ran.said("value.txt")


def test_a_merge_that_asks_takes_the_side_a_person_names(sandbox):
    box = sandbox(
        [
            keeping("one", "echo one > value.txt; echo 1 > one.txt"),
            keeping("two", "echo two > value.txt; echo 2 > two.txt"),
            Node(key="both", kind=NodeKind.MERGE, needs=("one", "two"), merge=Merge(on_conflict=OnConflict.ASK)),
            deliver("both"),
        ]
    )
    ran = box.run()
    assert ran.code == 0, ran.lines
    assert [box.file(BRANCH, name) for name in ("value.txt", "one.txt", "two.txt")] == ["one", "1", "2"]


def test_a_merge_without_a_policy_fails_on_a_conflict(sandbox):
    ran = sandbox(
        [
            keeping("one", "echo one > value.txt"),
            keeping("two", "echo two > value.txt"),
            Node(key="both", kind=NodeKind.MERGE, needs=("one", "two"), merge=Merge()),
        ]
    ).run()
    assert ran.attempts("both") == {"both.1.1": "failed"}


def test_declared_artefacts_are_stored_by_content_and_missing_ones_fail_the_check(sandbox):
    box = sandbox(
        [
            command("good", "mkdir d; echo hello > d/a.txt", artefacts=(ArtefactRule(path="d/*.txt", name="report"),)),
            command("bad", "true", artefacts=(ArtefactRule(path="missing.txt", name="report"),)),
        ]
    )
    ran = box.run()
    assert (ran.outcome("good"), ran.outcome("bad")) == ("succeeded", "failed")
    assert ran.said("artefact_missing")
    stored = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    assert any(path.name == stored for path in (box.folder / "log" / "artefacts").rglob("*"))


def test_an_attempt_that_takes_too_long_is_timed_out_and_nothing_of_it_is_left(sandbox):
    box = sandbox([command("slow", "sleep 600 & sleep 600", timeout=Timeout(attempt=0.5))])
    ran = box.run()
    assert ran.attempts("slow") == {"slow.1.1": "timed_out"}
    assert box.wait_empty() == []


def test_a_join_that_tolerates_failure_lets_the_graph_succeed(sandbox):
    ran = sandbox([command("bad", "exit 1"), command("after", "true", "bad", join=Join(rule=JoinRule.ALL_DONE))]).run()
    assert ran.code == 0
    assert ran.outcome("after") == "succeeded"


def test_the_question_of_an_approval_is_a_template(sandbox):
    ask = Approval(question="Deliver {{ nodes.work.result.n }} changes?", timeout=60)
    box = sandbox(
        [
            command("work", "echo '{\"n\": 3}' > $CAISSON_RESULT", options={"result": NUMBER}),
            Node(key="sign-off", kind=NodeKind.APPROVAL, needs=("work",), approval=ask),
        ]
    )
    assert box.run().said("opened: Deliver 3 changes?")


def test_arguments_and_environment_of_a_command_are_templates(sandbox):
    said = Command(
        argv=("sh", "-c", 'echo "$0 $WHO" > value.txt', "{{ task.title }}"), env={"WHO": "{{ task.creator }}"}
    )
    box = sandbox([Node(key="write", kind=NodeKind.COMMAND, command=said, changes=Changes.KEEP)])
    assert box.run().code == 0
    assert box.file("refs/attempts/write/1/1", "value.txt") == "Test task ada"


def test_a_second_supervisor_on_the_same_folder_refuses_to_start(sandbox):
    box = sandbox([command("wait", "while ! test -e ../../../go; do sleep 0.05; done")])
    box.start()
    box.wait_for("attempt wait.1.1 running")
    second = box.start()
    assert second.wait(90) == 75
    (box.folder / "go").touch()
    assert box.started[0].wait(60) == 0
