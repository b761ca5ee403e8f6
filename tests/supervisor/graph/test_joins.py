import pytest

from sandbox_supervisor.graph.joins import Tally, Verdict, judge
from tests.supervisor.graph.play import Play, agent, command, flow, joined, when

WAIT, FIRE, SKIP, UNREACHABLE = Verdict.WAIT, Verdict.FIRE, Verdict.SKIP, Verdict.UNREACHABLE


@pytest.mark.parametrize(
    ("rule", "tally", "verdict"),
    [
        # succeeded, failed, skipped, pending
        ("none_failed_min_one_success", (2, 0, 0, 0), FIRE),
        ("none_failed_min_one_success", (1, 0, 1, 0), FIRE),
        ("none_failed_min_one_success", (1, 0, 0, 1), WAIT),
        ("none_failed_min_one_success", (0, 0, 1, 1), WAIT),
        ("none_failed_min_one_success", (0, 1, 0, 1), UNREACHABLE),
        ("none_failed_min_one_success", (1, 1, 0, 0), UNREACHABLE),
        ("none_failed_min_one_success", (0, 0, 2, 0), SKIP),
        ("none_failed_min_one_success", (0, 0, 0, 0), FIRE),
        ("all_success", (2, 0, 0, 0), FIRE),
        ("all_success", (1, 0, 0, 1), WAIT),
        ("all_success", (1, 0, 1, 0), UNREACHABLE),
        ("all_success", (0, 1, 0, 5), UNREACHABLE),
        ("all_success", (0, 0, 1, 5), UNREACHABLE),
        ("all_success", (0, 0, 0, 0), FIRE),
        ("all_done", (1, 1, 1, 0), FIRE),
        ("all_done", (0, 2, 0, 0), FIRE),
        ("all_done", (1, 1, 0, 1), WAIT),
        ("all_done", (0, 0, 0, 0), FIRE),
        ("any_success", (1, 0, 0, 2), FIRE),
        ("any_success", (0, 2, 0, 1), WAIT),
        ("any_success", (0, 2, 1, 0), UNREACHABLE),
        ("any_success", (0, 0, 0, 0), FIRE),
        ("at_least_2", (2, 0, 0, 1), FIRE),
        ("at_least_2", (1, 1, 0, 1), WAIT),
        ("at_least_2", (1, 2, 0, 0), UNREACHABLE),
        ("at_least_2", (0, 1, 1, 1), UNREACHABLE),
        ("always", (0, 1, 1, 0), FIRE),
        ("always", (1, 0, 0, 1), WAIT),
    ],
)
def test_a_join_says_at_once_whether_it_holds_and_whether_it_still_can(rule, tally, verdict):
    wanted = joined("at_least", at_least=2) if rule == "at_least_2" else joined(rule)
    names = ("succeeded", "failed", "skipped", "pending")
    assert judge(wanted, Tally(**dict(zip(names, tally, strict=True)))) is verdict


def test_nodes_without_needs_are_ready_at_once():
    play = Play(flow(command("a"), command("b")))
    assert play.states() == {"a": "ready", "b": "ready"}


def test_a_node_waits_for_all_its_needs():
    play = Play(flow(command("a"), command("b"), command("c", "a", "b")))
    play.run("a")
    play.is_(c="waiting")
    play.run("b")
    play.is_(c="ready")


def test_a_failure_makes_everything_downstream_unreachable_and_fails_the_graph():
    play = Play(flow(command("a"), command("b", "a"), command("c", "b")))
    play.fail("a")
    play.is_(a="failed", b="unreachable", c="unreachable")
    assert play.graph.state == "failed"
    assert play.graph.failure.code == "node_failed"
    assert play.graph.failure.facts["nodes"] == ["a", "b", "c"]


def test_a_node_is_unreachable_while_its_other_needs_still_run():
    play = Play(flow(command("a"), command("b"), command("c", "a", "b")))
    play.start("b")
    play.fail("a")
    play.is_(b="running", c="unreachable")
    assert play.graph.state == "running"


def test_a_diamond_with_one_skipped_branch_runs_its_join_once():
    made = flow(
        command("a"),
        command("left", "a", when=(when("a.result.way", "eq", "left"),)),
        command("right", "a", when=(when("a.result.way", "eq", "right"),)),
        command("end", "left", "right"),
    )
    play = Play(made)
    play.run("a", result={"way": "left"})
    play.is_(left="ready", right="skipped", end="waiting")
    play.run("left", "end")
    assert len(play.attempts("end")) == 1
    assert play.graph.state == "succeeded"


def test_a_node_whose_needs_were_all_skipped_is_skipped_and_the_graph_succeeds():
    no = (when("inputs.deploy", "eq", True),)
    play = Play(flow(command("a", when=no), command("b", when=no), command("c", "a", "b")), inputs={"deploy": False})
    play.is_(a="skipped", b="skipped", c="skipped")
    assert play.graph.state == "succeeded"
    assert not play.state.attempts


def test_any_success_fires_on_the_first_and_only_once():
    play = Play(flow(command("a"), command("b"), command("c", "a", "b", join=joined("any_success"))))
    play.start("a")
    play.start("b")
    play.succeed("b")
    play.run("c")
    play.succeed("a")
    assert len(play.attempts("c")) == 1
    assert play.graph.state == "succeeded"


def test_any_success_tolerates_the_failure_of_the_others():
    play = Play(flow(command("a"), command("b"), command("c", "a", "b", join=joined("any_success"))))
    play.fail("a")
    play.run("b", "c")
    assert play.graph.state == "succeeded"


def test_a_failure_is_not_tolerated_by_a_join_that_did_not_hold():
    made = flow(command("a"), command("b", "a", join=joined("any_success")), command("c", "b", join=joined("all_done")))
    play = Play(made)
    play.fail("a")
    play.run("c")
    play.is_(a="failed", b="unreachable", c="succeeded")
    assert play.graph.state == "failed"
    assert play.graph.failure.facts["nodes"] == ["a"]


def test_at_least_fires_when_enough_have_succeeded():
    needs = ["a", "b", "c"]
    play = Play(flow(*map(command, needs), command("d", *needs, join=joined("at_least", at_least=2))))
    play.run("a")
    play.is_(d="waiting")
    play.fail("b")
    play.run("c", "d")
    assert play.graph.state == "succeeded"


@pytest.mark.parametrize("rule", ["all_done", "always"])
def test_all_done_and_always_run_whatever_happened_and_tolerate_it(rule):
    play = Play(flow(command("a"), command("b"), command("c", "a", "b", join=joined(rule))))
    play.fail("a")
    play.is_(c="waiting")
    play.run("b", "c")
    assert play.graph.state == "succeeded"


def test_a_failed_leaf_fails_the_graph_although_another_branch_succeeds():
    play = Play(flow(command("a"), command("b")))
    play.fail("a")
    play.run("b")
    assert play.graph.state == "failed"


def test_cancel_rest_stops_running_needs_and_drops_waiting_ones():
    made = flow(
        command("a"),
        command("b"),
        command("c"),
        command("d", "c"),
        command("end", "a", "b", "d", join=joined("any_success", on_satisfied="cancel_rest")),
    )
    play = Play(made)
    play.start("a")
    play.start("b")
    play.start("c")
    play.succeed("a")
    play.is_(b="running", c="running", d="cancelled", end="ready")
    (stop,) = play.intents("stop")
    assert stop.data == {"how": "cancel", "reason": "join_satisfied"}
    play.end("b")
    play.succeed("c")
    play.run("end")
    play.is_(b="cancelled")
    assert play.graph.state == "succeeded"


def test_let_finish_lets_the_others_run_on():
    play = Play(flow(command("a"), command("b"), command("c", "a", "b", join=joined("any_success"))))
    play.start("a")
    play.start("b")
    play.succeed("a")
    play.is_(b="running", c="ready")
    assert not play.intents("stop")


def test_consumed_outputs_are_recorded_when_the_join_fires():
    play = Play(flow(agent("a"), command("b"), command("c", "a", "b", join=joined("any_success"))))
    play.start("b")
    play.run("a", digest="x")
    assert play.row("c").consumed == {"a": "x"}


def test_an_unreachable_node_names_the_needs_that_are_to_blame():
    play = Play(flow(command("a"), command("b", "a")))
    play.fail("a")
    reasons = [event.data.get("reason") for event in play.events if event.node == "b"]
    assert reasons == ["needs: a failed"]
