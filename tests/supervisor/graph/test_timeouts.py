import pytest

from sandbox_supervisor.graph.facts import Restarted, TimerFired
from sandbox_supervisor.graph.rows import Change
from sandbox_supervisor.protocol.flow import Retry, Timeout
from sandbox_supervisor.protocol.states import FailureClass
from tests.supervisor.graph.play import Play, agent, command, flow


def limited(*, attempt=None, node=None, **retry):
    return Play(flow(agent("a", timeout=Timeout(attempt=attempt, node=node), retry=Retry(**retry))))


def test_an_attempt_that_takes_too_long_is_told_to_stop():
    play = limited(attempt=10.0)
    play.start("a")
    play.tick(11)
    assert play.attempts("a")[0].cancel_reason == "timeout"
    assert [intent.data for intent in play.intents("stop")] == [{"how": "cancel", "reason": "timeout"}]
    play.is_(a="running")


def test_it_is_timed_out_when_its_tree_is_gone():
    play = limited(attempt=10.0)
    play.start("a")
    play.tick(11)
    play.end("a")
    assert str(play.attempts("a")[0].state) == "timed_out"
    play.is_(a="failed")
    assert play.row("a").failure.code == "attempt_timeout"


@pytest.mark.parametrize("how", ["succeed", "fail", "interrupt"])
def test_the_time_out_wins_over_what_the_process_says_afterwards(how):
    play = limited(attempt=10.0)
    play.start("a")
    play.tick(11)
    getattr(play, how)("a")
    assert str(play.attempts("a")[0].state) == "timed_out"
    play.is_(a="failed")


def test_a_time_out_is_tried_again_only_if_the_flow_says_so():
    play = limited(attempt=10.0, limit=1, on=(FailureClass.TIMEOUT,))
    play.start("a")
    play.tick(11)
    play.end("a")
    play.is_(a="ready")


def test_a_new_attempt_has_its_full_time():
    play = limited(attempt=10.0)
    play.start("a")
    play.tick(8)
    play.interrupt("a")
    play.tick(5)
    play.start("a")
    play.tick(9)
    play.is_(a="running")


def test_the_nodes_time_runs_over_all_its_attempts():
    play = limited(node=10.0)
    play.start("a")
    play.tick(6)
    play.interrupt("a")
    assert play.row("a").node_seconds == 6
    play.tick(100)
    play.start("a")
    play.tick(3)
    assert play.attempts("a")[1].cancel_reason is None
    play.tick(2)
    assert play.attempts("a")[1].cancel_reason == "node_timeout"


def test_a_nodes_time_out_is_never_tried_again():
    play = limited(node=10.0, limit=5, on=tuple(FailureClass))
    play.start("a")
    play.tick(11)
    play.end("a")
    play.is_(a="failed")
    assert play.row("a").failure.code == "node_timeout"


def test_the_nodes_clock_goes_on_while_a_person_is_asked():
    play = limited(attempt=10.0, node=50.0)
    play.start("a")
    play.ask("a")
    play.tick(51)
    assert play.attempts("a")[0].cancel_reason == "node_timeout"
    assert str(play.state.requests["q1"].state) == "cancelled"


def test_consumed_time_is_stored_with_the_attempt():
    play = limited(attempt=10.0)
    play.start("a")
    play.tick(4)
    play.ask("a")
    assert play.attempts("a")[0].active_seconds == 4
    assert play.attempts("a")[0].clock_since is None


def test_a_restart_continues_clocks_and_counts_no_downtime():
    play = limited(attempt=10.0, node=20.0)
    play.start("a")
    play.tick(4)
    died = play.instant
    play.instant += 500
    play.do(Restarted(boot=2, alive_until=died))
    assert {key: row.remaining for key, row in play.state.timers.items()} == {"attempt:a.1.1": 6.0, "node:a": 16.0}
    play.interrupt("a")
    assert play.attempts("a")[0].active_seconds == 4
    assert play.row("a").node_seconds == 4


def test_back_off_goes_on_through_a_restart():
    play = limited(infra_limit=1, backoff=100.0)
    play.fail("a", "infra")
    before = play.state.timers["retry:a"]
    died = play.instant
    play.instant += 50
    play.do(Restarted(boot=2, alive_until=died))
    assert play.state.timers["retry:a"] == before


def test_after_a_reboot_every_wait_goes_on_from_what_was_left():
    play = limited(infra_limit=1, backoff=100.0)
    play.fail("a", "infra")
    left = play.state.timers["retry:a"].remaining - 30
    play.instant += 30
    died, play.instant = play.instant, 5.0
    play.do(Restarted(boot=2, alive_until=died, same_boot=False))
    timer = play.state.timers["retry:a"]
    assert (timer.since, timer.remaining) == (5.0, left)


def test_a_restart_is_told_with_what_the_supervisor_says_of_itself():
    play = limited()
    change = play.do(Restarted(boot=3, data={"isolation": "bubblewrap"}))
    assert [(str(event.kind), event.data) for event in change.events] == [
        ("supervisor.started", {"isolation": "bubblewrap", "boot": 3})
    ]


def test_a_timer_that_is_not_due_or_gone_means_nothing():
    play = limited(attempt=10.0)
    play.start("a")
    assert play.do(TimerFired(timer="attempt:a.1.1")) == Change()
    assert play.do(TimerFired(timer="attempt:b.1.1")) == Change()
    play.succeed("a")
    play.instant += 100
    assert play.do(TimerFired(timer="attempt:a.1.1")) == Change()


def test_a_killed_attempt_leaves_no_timer_behind():
    play = limited(attempt=10.0, node=20.0)
    play.start("a")
    play.order("cancel")
    play.end("a")
    assert not play.state.timers


def test_without_time_outs_nothing_is_ever_stopped():
    play = Play(flow(command("a")))
    play.start("a")
    play.tick(10_000_000)
    play.is_(a="running")
