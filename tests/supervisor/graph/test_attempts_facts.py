import math

import pytest

from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.facts import EffectDone, Ended, Failed, Finishing, Prepared, Progress, Spawned, Succeeded
from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.graph.rows import AttemptId, Change, NewEvent
from tests.supervisor.graph.play import Play, agent, approval, command, delivery, failure, flow, joined, merge, when

IDENTITY = Identity(pid=4, start_time=2, boot_id="b")


def steps(play, key):
    return [str(event.data["state"]) for event in play.events if event.kind == "attempt.state" and event.node == key]


def test_a_commands_attempt_passes_through_its_states_in_order():
    play = Play(flow(command("a")))
    play.run("a")
    assert steps(play, "a") == ["provisioning", "starting", "running", "succeeded"]


def test_each_step_wants_exactly_the_next_effect():
    play = Play(flow(command("a")))
    attempt = play.dispatch("a")
    assert list(play.state.intents) == ["prepare:a.1.1"]
    play.do(Prepared(attempt=attempt, base_commit="b"))
    assert list(play.state.intents) == ["spawn:a.1.1"]
    play.do(Spawned(attempt=attempt, identity=IDENTITY))
    assert list(play.state.intents) == ["go:a.1.1"]
    play.succeed("a")
    assert list(play.state.intents) == ["archive:1"]


def test_identity_and_base_are_recorded_before_the_process_may_go():
    play = Play(flow(command("a")))
    attempt = play.dispatch("a")
    play.do(Prepared(attempt=attempt, base_commit="b"))
    change = play.do(Spawned(attempt=attempt, identity=IDENTITY))
    (row,) = change.attempts
    assert (row.identity, row.base_commit) == (IDENTITY, "b")
    assert [intent.kind for intent in change.intents] == ["go"]


def test_a_success_makes_the_attempt_the_winner_and_passes_on_what_it_made():
    play = Play(flow(agent("a")))
    play.run("a", result={"n": 1})
    row = play.row("a")
    assert (row.winner, row.result_commit, row.output_digest, row.result) == (
        "a.1.1",
        "commit-a.1.1",
        "digest-a.1.1",
        {"n": 1},
    )


def test_artefacts_are_told_and_each_content_is_uploaded_once():
    play = Play(flow(command("a"), command("b")))
    item = {"name": "plan", "path": "PLAN.md", "digest": "sha256:1", "size": 3, "media_type": "text/markdown"}
    play.start("a")
    play.succeed("a", artefacts=[item])
    play.start("b")
    play.succeed("b", artefacts=[item, {**item, "digest": "sha256:2"}])
    assert [intent.subject for intent in play.intents("upload")] == ["sha256:1", "sha256:2"]
    assert play.kinds().count("artefact.stored") == 3
    play.do(EffectDone(intent="upload:sha256:1", events=(NewEvent(kind="artefact.uploaded"),)))
    assert [intent.subject for intent in play.intents("upload")] == ["sha256:2"]


def test_an_effect_reported_done_twice_is_done_once():
    play = Play(flow(command("a")))
    play.run("a")
    assert play.do(EffectDone(intent="archive:1")).intents_done == ("archive:1",)
    assert play.do(EffectDone(intent="archive:1")) == Change()


def test_progress_belongs_to_its_attempt_whatever_it_says():
    play = Play(flow(agent("a")))
    attempt = play.start("a")
    event = NewEvent(kind="session.message", node="other", attempt="other.1.1", generation=9, data={"text": "hi"})
    change = play.do(Progress(attempt=attempt, events=(event,)))
    (told,) = change.events
    assert (told.node, told.generation, told.attempt) == ("a", 1, "a.1.1")
    assert not change.attempts


def test_usage_totals_are_kept_and_told_and_nonsense_is_dropped():
    play = Play(flow(agent("a")))
    attempt = play.start("a")
    first = play.do(Progress(attempt=attempt, events=(), usage={"input_tokens": 5.0, "cost": math.nan}))
    then = play.do(Progress(attempt=attempt, events=(), usage={"output_tokens": 1.0}))
    totals = {"input_tokens": 5.0, "output_tokens": 1.0}
    assert play.attempts("a")[0].usage == totals
    told = [(str(event.kind), event.attempt, event.data) for event in (*first.events, *then.events)]
    assert told == [("session.usage", "a.1.1", {"input_tokens": 5.0}), ("session.usage", "a.1.1", totals)]
    assert play.do(Progress(attempt=attempt, events=(), usage=totals)) == Change()


LATE = {
    "prepared": lambda attempt: Prepared(attempt=attempt, base_commit="b"),
    "spawned": lambda attempt: Spawned(attempt=attempt, identity=IDENTITY),
    "progress": lambda attempt: Progress(attempt=attempt, events=(NewEvent(kind="output"),)),
    "finishing": lambda attempt: Finishing(attempt=attempt),
    "failed": lambda attempt: Failed(attempt=attempt, failure=failure()),
    "ended": lambda attempt: Ended(attempt=attempt),
    "succeeded": lambda attempt: Succeeded(attempt=attempt, result_commit="x", output_digest="y"),
}


@pytest.mark.parametrize("what", LATE)
def test_a_fact_about_an_ended_attempt_only_leaves_a_note(what):
    play = Play(flow(command("a")))
    attempt = play.start("a")
    play.succeed("a")
    before = play.state
    change = play.do(LATE[what](attempt))
    assert play.state == before
    assert [(str(event.kind), event.data) for event in change.events] == [("attempt.late", {"what": what})]


@pytest.mark.parametrize("what", LATE)
def test_a_fact_about_an_attempt_that_never_was_is_refused(what):
    play = Play(flow(command("a")))
    with pytest.raises(Refusal) as refused:
        play.do(LATE[what](AttemptId(node="a", generation=1, n=1)))
    assert refused.value.code == "unknown_attempt"


def test_a_late_report_of_an_earlier_attempt_leaves_the_present_one_alone():
    play = Play(flow(command("a")))
    first = play.start("a")
    play.interrupt("a")
    play.tick(10)
    play.start("a")
    play.do(Succeeded(attempt=first, result_commit="x", output_digest="y"))
    play.is_(a="running")


def test_an_end_that_nobody_asked_for_is_an_interruption():
    play = Play(flow(command("a")))
    play.start("a")
    play.end("a", wip_commit="w")
    assert (str(play.attempts("a")[0].state), play.attempts("a")[0].wip_commit) == ("interrupted", "w")
    play.is_(a="ready")


def test_a_failure_of_class_timeout_ends_the_attempt_as_timed_out():
    play = Play(flow(command("a")))
    play.fail("a", "timeout")
    assert str(play.attempts("a")[0].state) == "timed_out"


def test_finishing_stops_the_clocks():
    play = Play(flow(command("a")))
    attempt = play.start("a")
    play.tick(5)
    play.do(Finishing(attempt=attempt))
    play.tick(60)
    play.succeed("a")
    assert play.attempts("a")[0].active_seconds == 5
    assert steps(play, "a")[-2:] == ["finishing", "succeeded"]


def test_repeating_a_step_that_has_been_taken_changes_no_state():
    play = Play(flow(command("a")))
    attempt = play.start("a")
    before = play.state
    play.do(Prepared(attempt=attempt, base_commit="base-a.1.1"))
    play.do(Spawned(attempt=attempt, identity=play.attempts("a")[0].identity))
    assert play.state == before


def test_a_delivery_records_its_base_and_then_delivers():
    play = Play(flow(delivery("d")))
    attempt = play.dispatch("d")
    play.do(Prepared(attempt=attempt, base_commit="b"))
    assert [intent.id for intent in play.state.intents.values()] == ["deliver:d.1.1"]
    assert steps(play, "d") == ["provisioning", "running"]
    play.succeed("d")
    assert play.graph.state == "succeeded"


def test_a_merge_wants_a_merge_and_may_succeed_without_any_process():
    play = Play(flow(merge("m")))
    play.dispatch("m")
    assert list(play.state.intents) == ["merge:m.1.1"]
    play.succeed("m")
    assert play.graph.state == "succeeded"


def test_a_merge_in_conflict_goes_on_as_an_agent():
    play = Play(flow(merge("m", by="scripted")))
    attempt = play.dispatch("m")
    play.do(Prepared(attempt=attempt, base_commit="b"))
    assert list(play.state.intents) == ["spawn:m.1.1"]
    play.do(Spawned(attempt=attempt, identity=IDENTITY))
    play.succeed("m")
    assert play.row("m").result_commit == "commit-m.1.1"


def test_max_parallel_is_the_most_that_ever_ran_at_once():
    play = Play(flow(command("a"), command("b"), command("c")))
    play.start("a")
    play.start("b")
    play.succeed("a")
    play.run("c")
    play.succeed("b")
    assert play.graph.max_parallel == 2


def test_the_first_nodes_start_is_recorded_once():
    play = Play(flow(command("a"), command("b")))
    assert play.graph.first_node_at is None
    play.run("a")
    play.tick(60)
    play.run("b")
    assert play.graph.first_node_at == "2030-01-01T00:00:00.000Z"


def test_the_kernel_gives_the_same_answer_for_the_same_question():
    play = Play(flow(agent("a"), approval("ok", "a"), command("b", "a")))
    play.start("a")
    fact = Succeeded(attempt=play.attempt("a"), result_commit="c", output_digest="d")
    answers = [kernel.step(play.flow, play.state, fact, play.now()) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]


def test_the_first_event_names_task_and_specification():
    change = kernel.initial(flow(command("a")), task="tsk_1", specification="sha256:0")
    assert (change.events[0].kind, change.events[0].data) == (
        "log.created",
        {"task": "tsk_1", "specification": "sha256:0"},
    )


# --- bases -----------------------------------------------------------------------------------------------------------


def commits(play, key):
    return [source.commit for source in kernel.sources(play.flow, play.state, key)]


def test_a_base_is_merged_from_succeeded_needs_in_definition_order():
    play = Play(flow(agent("a"), agent("b"), command("c", "b", "a")))
    play.run("b", "a")
    assert commits(play, "c") == ["commit-a.1.1", "commit-b.1.1"]


def test_needs_that_ended_badly_contribute_nothing():
    play = Play(flow(agent("a"), agent("b"), command("c", "a", "b", join=joined("all_done"))))
    play.run("a")
    play.fail("b")
    assert commits(play, "c") == ["commit-a.1.1"]


def test_a_skipped_need_passes_on_what_it_would_have_been_based_on():
    no = (when("inputs.x", "eq", 1),)
    play = Play(
        flow(agent("a"), command("b", "a", when=no), command("c", "b", when=no), command("d", "c", "a")),
        inputs={"x": 0},
    )
    play.run("a")
    play.is_(b="skipped", c="skipped", d="ready")
    assert commits(play, "d") == ["commit-a.1.1"]


def test_an_approval_passes_its_base_on():
    play = Play(flow(agent("a"), approval("ok", "a"), delivery("d", "ok")))
    play.run("a")
    play.do(Prepared(attempt=play.dispatch("ok"), base_commit="merged"))
    play.order("answer", request="approval:ok.1.1", answer={"option": "yes"})
    assert commits(play, "d") == ["merged"]


def test_a_need_that_ended_after_the_join_had_fired_is_not_part_of_the_base():
    play = Play(flow(agent("a"), agent("b"), command("c", "a", "b", join=joined("any_success"))))
    play.start("b")
    play.run("a")
    play.succeed("b")
    assert commits(play, "c") == ["commit-a.1.1"]


def test_a_node_without_needs_is_based_on_the_baseline_alone():
    assert commits(Play(flow(agent("a"))), "a") == []
