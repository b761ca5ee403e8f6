import math
from dataclasses import replace

import pytest

from sandbox_supervisor.graph.facts import Dispatched, Failed, Interrupted
from sandbox_supervisor.graph.retry import LONGEST_WISH, delay, jitter
from sandbox_supervisor.protocol.flow import Retry
from sandbox_supervisor.protocol.states import FailureClass
from tests.supervisor.graph.play import Play, agent, command, failure, flow, joined

EVERYTHING = tuple(FailureClass)


def one(**retry):
    return Play(flow(command("a", retry=Retry(**retry))))


def test_a_failure_without_budget_fails_the_node():
    play = one(limit=0)
    play.fail("a", "agent_error")
    play.is_(a="failed")
    assert play.row("a").failure.code == "broken"


def test_a_class_in_the_list_is_tried_again_up_to_the_limit():
    play = one(limit=2, on=(FailureClass.AGENT_ERROR,))
    for _ in range(2):
        play.fail("a", "agent_error")
        play.is_(a="ready")
        play.tick(100)
    play.fail("a", "agent_error")
    play.is_(a="failed")
    assert [row.id.n for row in play.attempts("a")] == [1, 2, 3]


@pytest.mark.parametrize("kind", [kind for kind in FailureClass if kind is not FailureClass.INFRA])
def test_a_class_that_is_not_in_the_list_is_not_tried_again(kind):
    play = one(limit=5, on=tuple(other for other in EVERYTHING if other is not kind))
    play.fail("a", kind)
    play.is_(a="failed")


def test_infra_has_a_budget_of_its_own_of_two():
    play = one(limit=0)
    for _ in range(2):
        play.fail("a", "infra")
        play.is_(a="ready")
        play.tick(100)
    play.fail("a", "infra")
    play.is_(a="failed")
    assert len(play.attempts("a")) == 3


def test_infra_failures_do_not_use_up_the_other_budget():
    play = one(limit=1, on=(FailureClass.AGENT_ERROR,))
    for kind in ("infra", "agent_error", "infra"):
        play.fail("a", kind)
        play.is_(a="ready")
        play.tick(100)
    play.fail("a", "agent_error")
    play.is_(a="failed")


def test_an_interruption_counts_as_infra():
    play = one()
    for _ in range(3):
        play.tick(100)
        play.start("a")
        play.interrupt("a")
    play.is_(a="failed")
    assert [str(row.state) for row in play.attempts("a")] == ["interrupted"] * 3
    assert play.row("a").failure.code == "interrupted"


def test_a_node_in_back_off_is_not_dispatched_before_its_time():
    play = one(infra_limit=1, backoff=10.0)
    play.fail("a", "infra")
    assert play.ready() == []
    play.tick(7.4)
    assert play.ready() == []
    play.tick(5.2)
    assert play.ready() == ["a"]


def test_the_back_off_is_committed_with_the_failure():
    play = one(infra_limit=1, backoff=10.0)
    play.start("a")
    change = play.do(Failed(attempt=play.attempt("a"), failure=failure("infra")))
    (timer,) = change.timers_set
    assert timer.id == "retry:a"
    assert 7.5 <= timer.remaining < 12.5
    (retry,) = [event for event in change.events if event.kind == "attempt.retry"]
    assert retry.data == {"failure_class": "infra", "next_n": 2, "not_before_in": round(timer.remaining, 3)}


def test_back_off_doubles_up_to_a_hundred_times_itself():
    retry = Retry(backoff=2.0)
    assert [delay(retry, used, 1.0, None) for used in range(4)] == [2, 4, 8, 16]
    assert delay(retry, 30, 1.0, None) == 200
    assert delay(retry, 100_000, 1.0, None) == 200


def test_jitter_depends_on_the_attempt_alone_and_stays_near_one():
    found = {
        jitter(task, node, generation, n) for task in "ab" for node in "xy" for generation in (1, 2) for n in (1, 2)
    }
    assert len(found) == 16
    assert all(0.75 <= factor < 1.25 for factor in found)
    assert jitter("a", "x", 1, 1) == jitter("a", "x", 1, 1)


@pytest.mark.parametrize(
    ("wish", "wait"),
    [
        (None, 1.0),
        (0.1, 1.0),
        (30.0, 30.0),
        (1e9, LONGEST_WISH),
        (math.nan, 1.0),
        (math.inf, LONGEST_WISH),
        (-5.0, 1.0),
    ],
)
def test_a_rate_limit_may_ask_for_longer_but_not_for_ever(wish, wait):
    assert delay(Retry(backoff=1.0), 0, 1.0, wish) == wait


def test_a_rate_limited_attempt_waits_as_long_as_it_was_told():
    play = one(limit=1)
    play.fail("a", "rate_limited", retry_after=90.0)
    play.tick(89)
    assert play.ready() == []
    play.tick(2)
    assert play.ready() == ["a"]


def test_a_failed_attempt_keeps_its_work_in_progress():
    play = one(limit=1)
    play.fail("a", "agent_error", wip_commit="wip")
    assert play.attempts("a")[0].wip_commit == "wip"


def test_a_retry_does_not_fire_the_join_again():
    play = Play(flow(command("a"), agent("b", "a")))
    play.run("a")
    play.fail("b", "infra")
    generation = play.row("b").generation
    play.tick(10)
    play.run("b")
    assert play.row("b").generation == generation == 1
    assert play.row("b").winner == "b.1.2"


def test_retries_go_on_after_a_sibling_has_failed():
    play = Play(flow(command("a"), command("b", retry=Retry(limit=1, on=EVERYTHING))))
    play.start("b")
    play.fail("a")
    play.fail("b")
    play.is_(a="failed", b="ready")


def test_a_new_generation_has_its_budgets_anew():
    play = Play(flow(command("a", retry=Retry(infra_limit=1)), command("b", "a", join=joined("all_done"))))
    play.fail("a", "infra")
    play.tick(10)
    play.fail("a", "infra")
    play.run("b")
    play.order("rerun", nodes=("a",))
    play.is_(a="ready")
    assert (play.row("a").infra_retries, play.row("a").attempts, play.row("a").generation) == (0, 0, 2)


def test_a_task_out_of_attempts_fails_the_next_node_for_its_budget():
    play = Play(flow(command("a"), command("b", "a")), attempts_limit=1)
    play.run("a")
    play.do(Dispatched(node="b"))
    play.is_(b="failed")
    assert play.row("b").failure.failure_class == "budget"
    assert play.graph.state == "failed"


def test_the_same_dead_attempt_reported_twice_is_one_interruption_and_one_retry():
    play = one()
    attempt = play.start("a")
    play.interrupt("a")
    change = play.do(Interrupted(attempt=attempt, cause="again"))
    assert [str(event.kind) for event in change.events] == ["attempt.late"]
    assert replace(change, events=()) == type(change)()
    assert play.row("a").infra_retries == 1
