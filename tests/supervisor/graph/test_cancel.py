import pytest

from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.facts import GateClosed, GateOpened, Prepared, Spawned, Succeeded
from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.protocol.flow import Retry
from sandbox_supervisor.protocol.messages import CancelMode
from sandbox_supervisor.protocol.states import FailureClass
from tests.supervisor.graph.play import Play, agent, approval, command, flow, joined, when


def running(*, last=()):
    play = Play(
        flow(command("a", retry=Retry(limit=5, on=tuple(FailureClass))), command("b", "a"), command("c"), last=last)
    )
    play.start("a")
    return play


def test_the_wish_is_committed_before_anything_is_stopped():
    play = running()
    change = play.order("cancel")
    assert play.attempts("a")[0].cancel_reason == "cancelled"
    assert [intent.data["how"] for intent in change.intents] == ["cancel"]
    assert str(play.graph.state) == "cancelling"


def test_the_graph_is_cancelled_only_when_every_attempt_has_ended():
    play = running()
    play.start("c")
    play.order("cancel")
    play.end("a")
    assert play.graph.state == "cancelling"
    play.end("c")
    assert play.graph.state == "cancelled"
    play.is_(a="cancelled", b="cancelled", c="cancelled")


def test_cancel_beats_retry():
    play = running()
    play.order("cancel")
    play.fail("a", "agent_error")
    play.is_(a="cancelled")
    assert not play.state.timers
    assert len(play.attempts("a")) == 1


def test_cancel_beats_recovery_after_a_crash():
    play = running()
    play.order("cancel")
    play.interrupt("a")
    play.is_(a="cancelled")
    assert str(play.attempts("a")[0].state) == "cancelled"
    assert play.graph.state == "cancelled"


def test_cancel_beats_a_success_that_arrives_after_it():
    play = running()
    play.order("cancel")
    play.succeed("a")
    play.is_(a="cancelled")
    assert play.attempts("a")[0].wip_commit == "commit-a.1.1"
    assert play.row("a").winner is None


def test_cancel_ends_a_back_off_and_leaves_no_timer():
    play = running()
    play.fail("a", "infra")
    play.order("cancel")
    play.is_(a="cancelled")
    assert play.graph.state == "cancelled"
    assert not play.state.timers


def test_drain_lets_running_attempts_finish_and_starts_nothing_more():
    play = running()
    play.order("cancel", mode=CancelMode.DRAIN)
    play.is_(a="running", b="cancelled", c="cancelled")
    assert not play.intents("stop")
    play.succeed("a")
    play.is_(a="succeeded", b="cancelled")
    assert play.graph.state == "cancelled"


def test_a_failure_while_draining_is_not_tried_again():
    play = running()
    play.order("cancel", mode=CancelMode.DRAIN)
    play.fail("a", "agent_error")
    play.is_(a="failed")
    assert play.graph.state == "cancelled"


def test_an_interruption_while_draining_is_not_tried_again():
    play = running()
    play.order("cancel", mode=CancelMode.DRAIN)
    play.interrupt("a")
    play.is_(a="cancelled")


def test_finally_runs_once_after_a_cancel():
    play = running(last=[command("clean")])
    play.order("cancel")
    play.is_(clean="waiting")
    play.end("a")
    play.is_(clean="ready")
    assert play.graph.state == "cancelling"
    play.run("clean")
    assert len(play.attempts("clean")) == 1
    assert play.graph.state == "cancelled"


def test_a_kill_leaves_finally_out():
    play = running(last=[command("clean")])
    play.order("cancel", mode=CancelMode.KILL)
    assert [intent.data["how"] for intent in play.intents("stop")] == ["kill"]
    play.end("a")
    play.is_(clean="cancelled")
    assert play.graph.state == "cancelled"


def test_a_cancel_can_be_hastened_but_not_softened():
    play = running()
    play.order("cancel", mode=CancelMode.DRAIN)
    play.order("cancel", mode=CancelMode.CANCEL)
    play.order("cancel", mode=CancelMode.KILL)
    assert [intent.id for intent in play.intents("stop")] == ["stop:a.1.1", "stop:a.1.1:kill"]
    for mode in CancelMode:
        with pytest.raises(Refusal) as refused:
            play.order("cancel", mode=mode)
        assert refused.value.code == "already_cancelling"


def test_a_kill_also_stops_running_finally_nodes():
    play = running(last=[command("clean"), command("more", "clean")])
    play.order("cancel")
    play.end("a")
    play.start("clean")
    play.order("cancel", mode=CancelMode.KILL)
    play.end("clean")
    play.is_(clean="cancelled", more="cancelled")
    assert play.graph.state == "cancelled"


def test_a_cancel_during_finally_lets_it_run_and_gives_the_word_cancelled():
    play = Play(flow(command("a"), last=[command("clean")]))
    play.run("a")
    play.order("cancel")
    play.is_(a="succeeded", clean="ready")
    play.run("clean")
    assert play.graph.state == "cancelled"


def test_an_ended_graph_cannot_be_cancelled():
    play = Play(flow(command("a")))
    play.run("a")
    with pytest.raises(Refusal) as refused:
        play.order("cancel")
    assert refused.value.code == "graph_ended"


def test_a_cancel_before_the_gate_opened_ends_without_finally():
    play = Play(flow(command("a"), last=[command("clean")]), gate=False)
    play.order("cancel")
    play.is_(a="cancelled", clean="cancelled")
    assert play.graph.state == "cancelled"
    assert not play.state.attempts


def test_a_cancel_withdraws_open_questions():
    play = Play(flow(agent("a"), approval("ok")))
    play.start("a")
    play.ask("a")
    play.do(Prepared(attempt=play.dispatch("ok"), base_commit="b"))
    play.order("cancel")
    assert {str(row.state) for row in play.state.requests.values()} == {"cancelled"}
    play.is_(ok="cancelled", a="needs_input")
    play.end("a")
    assert play.graph.state == "cancelled"


def test_a_paused_graph_can_be_cancelled():
    play = running()
    play.order("pause")
    play.order("cancel")
    play.end("a")
    assert play.graph.state == "cancelled"


@pytest.mark.parametrize("at", ["provisioning", "starting"])
def test_an_attempt_that_is_being_stopped_goes_no_further(at):
    play = Play(flow(command("a")))
    attempt = play.dispatch("a")
    if at == "starting":
        play.do(Prepared(attempt=attempt, base_commit="b"))
    play.order("cancel")
    identity = Identity(pid=7, start_time=1, boot_id="x")
    change = play.do(Prepared(attempt=attempt, base_commit="b"))
    assert not change.intents
    change = play.do(Spawned(attempt=attempt, identity=identity))
    assert not change.intents
    assert play.attempts("a")[0].identity == identity
    play.end("a")
    assert play.graph.state == "cancelled"


# --- one attempt -----------------------------------------------------------------------------------------------------


def test_a_cancelled_attempt_is_not_tried_again_and_its_dependants_are_unreachable():
    play = running()
    play.order("cancel_attempt", attempt="a.1.1")
    play.is_(a="running")
    play.end("a")
    play.is_(a="cancelled", b="unreachable")
    assert len(play.attempts("a")) == 1
    play.run("c")
    assert play.graph.state == "failed"
    assert play.graph.failure.facts["nodes"] == ["a", "b"]


def test_a_cancelled_attempt_is_tolerated_like_a_failure():
    play = Play(flow(command("a"), command("b", "a", join=joined("all_done"))))
    play.start("a")
    play.order("cancel_attempt", attempt="a.1.1")
    play.end("a")
    play.run("b")
    assert play.graph.state == "succeeded"


def test_an_approval_is_cancelled_at_once():
    play = Play(flow(approval("ok"), command("b", "ok", join=joined("all_done"))))
    play.do(Prepared(attempt=play.dispatch("ok"), base_commit="b"))
    play.order("cancel_attempt", attempt="ok.1.1")
    play.is_(ok="cancelled", b="ready")


@pytest.mark.parametrize(
    ("attempt", "code"), [("a.9.9", "unknown_attempt"), (None, "unknown_attempt"), ("a.1.1", "already_stopping")]
)
def test_an_attempt_cannot_be_cancelled_twice_nor_a_stranger(attempt, code):
    play = running()
    play.order("cancel_attempt", attempt="a.1.1")
    with pytest.raises(Refusal) as refused:
        play.order("cancel_attempt", attempt=attempt)
    assert refused.value.code == code


def test_an_attempt_that_has_ended_cannot_be_cancelled():
    play = running()
    play.succeed("a")
    with pytest.raises(Refusal) as refused:
        play.order("cancel_attempt", attempt="a.1.1")
    assert refused.value.code == "attempt_ended"


# --- gate and pause --------------------------------------------------------------------------------------------------


def test_nothing_is_dispatched_before_the_gate_opens():
    play = Play(flow(command("a")), gate=False)
    play.is_(a="ready")
    assert play.ready() == []
    play.do(GateOpened(round=1))
    assert play.ready() == ["a"]


def test_a_dispatch_before_the_gate_opens_is_refused():
    play = Play(flow(command("a")), gate=False)
    with pytest.raises(Refusal) as refused:
        play.dispatch("a")
    assert refused.value.code == "not_ready"


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_word_about_another_round_opens_nothing(number):
    play = Play(flow(command("a")), gate=False)
    play.do(GateOpened(round=number))
    assert play.ready() == []


def test_opening_the_gate_again_changes_nothing():
    play = Play(flow(command("a")))
    before = play.state
    play.do(GateOpened(round=1))
    assert play.state == before


def test_a_graph_without_anything_to_do_ends_only_after_the_gate_has_opened():
    play = Play(flow(command("a", when=(when("inputs.x", "eq", 1),))), gate=False, inputs={"x": 0})
    play.is_(a="skipped")
    assert play.graph.state == "running"
    play.do(GateOpened(round=1))
    assert play.graph.state == "succeeded"


def test_a_closed_gate_kills_everything_and_leaves_finally_out():
    play = running(last=[command("clean")])
    play.do(GateClosed(reason="connection_lost"))
    assert play.graph.stopped == "connection_lost"
    assert [intent.data for intent in play.intents("stop")] == [{"how": "kill", "reason": "stopped"}]
    assert play.ready() == []
    play.end("a")
    play.is_(a="cancelled", b="cancelled", c="cancelled", clean="cancelled")
    assert play.graph.state == "cancelled"


def test_the_gate_does_not_open_again_in_a_round_that_was_stopped():
    play = Play(flow(command("a")), gate=False)
    play.do(GateClosed(reason="sandbox_lost"))
    play.do(GateOpened(round=1))
    assert play.ready() == []
    assert play.graph.gate_round == 0


def test_closing_the_gate_of_an_ended_graph_changes_nothing():
    play = Play(flow(command("a")))
    play.run("a")
    before = play.state
    play.do(GateClosed(reason="completed"))
    assert play.state == before


def test_a_pause_stops_dispatch_and_lets_attempts_run_on():
    play = running()
    play.order("pause")
    assert play.ready() == []
    play.succeed("a")
    play.is_(a="succeeded", b="ready")
    assert play.ready() == []
    play.order("resume")
    assert play.ready() == ["b", "c"]


def test_pause_and_resume_are_refused_where_they_mean_nothing():
    play = running()
    with pytest.raises(Refusal, match="Only a paused graph"):
        play.order("resume")
    play.order("pause")
    with pytest.raises(Refusal, match="Only a running graph"):
        play.order("pause")


def test_a_late_success_of_a_cancelled_attempt_is_recorded_and_ignored():
    play = running()
    attempt = play.attempt("a")
    play.order("cancel")
    play.end("a")
    before = play.state
    change = play.do(Succeeded(attempt=attempt, result_commit="x", output_digest="y"))
    assert play.state == before
    assert [(str(event.kind), event.data) for event in change.events] == [("attempt.late", {"what": "succeeded"})]
