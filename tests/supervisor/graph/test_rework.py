import pytest

from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.facts import GateOpened, Prepared
from sandbox_supervisor.graph.rework import feedback_text
from tests.supervisor.graph.play import Play, agent, approval, command, delivery, flow, joined, reworks, when

CHANGES = {"verdict": "changes", "feedback": "Handle the empty list."}
APPROVE = {"verdict": "approve"}


def review_flow(rounds=2):
    return flow(
        command("plan"),
        agent("implement", "plan"),
        command("tests", "implement"),
        agent("review", "implement", "tests", join=joined("all_done"), rework=reworks("implement", rounds)),
        approval("sign-off", "review", when=(when("review.result.verdict", "eq", "approve"),)),
        delivery("deliver", "sign-off"),
    )


def until_review(rounds=2):
    play = Play(review_flow(rounds))
    play.run("plan", "implement", "tests")
    return play


def test_a_demand_gives_the_target_a_new_generation_with_the_feedback():
    play = until_review()
    play.run("review", result=CHANGES)
    row = play.row("implement")
    assert (str(row.state), row.generation) == ("ready", 2)
    (feedback,) = row.feedback
    assert (feedback.by, feedback.text) == ("review", "Handle the empty list.")
    assert (feedback.from_attempt, feedback.generation) == ("implement.1.1", 2)
    assert play.graph.rework_rounds == 1


def test_the_node_that_asks_waits_itself_and_its_other_dependants_are_not_looked_at():
    play = until_review()
    play.run("review", result=CHANGES)
    play.is_(**{"review": "waiting", "sign-off": "waiting", "deliver": "waiting", "tests": "stale"})


def test_the_attempt_that_asked_stays_succeeded():
    play = until_review()
    play.run("review", result=CHANGES)
    assert [str(row.state) for row in play.attempts("review")] == ["succeeded"]


def test_the_event_names_who_asked_whom_and_which_round_it_is():
    play = until_review()
    play.run("review", result=CHANGES)
    (event,) = [event for event in play.events if event.kind == "rework.asked"]
    assert event.data == {
        "by": "review",
        "node": "implement",
        "generation": 2,
        "feedback": "Handle the empty list.",
        "round": 1,
        "max_rounds": 2,
    }


def test_after_the_rework_everything_between_runs_again_in_order():
    play = until_review()
    play.run("review", result=CHANGES)
    play.run("implement")
    play.is_(tests="ready", review="waiting")
    play.run("tests")
    play.run("review", result=APPROVE)
    play.is_(**{"sign-off": "ready"})
    assert [len(play.attempts(key)) for key in ("plan", "implement", "tests", "review")] == [1, 2, 2, 2]
    assert [str(row.id) for row in play.attempts("review")] == ["review.1.1", "review.2.1"]


def test_rounds_are_bounded_and_then_the_node_fails():
    play = until_review(rounds=1)
    play.run("review", result=CHANGES)
    play.run("implement", "tests")
    play.run("review", result=CHANGES)
    play.is_(**{"review": "failed", "sign-off": "unreachable", "deliver": "unreachable"})
    assert play.row("review").failure.code == "rework_exhausted"
    assert play.graph.state == "failed"


def test_with_no_rounds_at_all_the_first_demand_fails():
    play = until_review(rounds=0)
    play.run("review", result=CHANGES)
    assert play.row("review").failure.code == "rework_exhausted"


def test_ancestors_of_the_target_are_never_touched():
    play = until_review()
    before = play.row("plan")
    play.run("review", result=CHANGES)
    assert play.row("plan") == before


def test_unchanged_output_gives_stale_consumers_their_result_back():
    play = until_review()
    play.run("review", result=CHANGES)
    play.run("implement", digest="digest-implement.1.1")
    play.is_(tests="succeeded", review="ready")
    assert len(play.attempts("tests")) == 1
    (cutoff,) = [event for event in play.events if event.kind == "node.cutoff"]
    assert (cutoff.node, cutoff.data) == ("tests", {"upstream": ["implement"]})


def test_a_cutoff_travels_down_a_chain():
    made = flow(
        agent("a"), command("b", "a"), command("c", "b"), command("d", "c"), agent("r", "d", rework=reworks("a"))
    )
    play = Play(made)
    play.run("a", "b", "c", "d")
    play.run("r", result=CHANGES)
    play.is_(b="stale", c="stale", d="stale")
    play.run("a")
    play.run("b", digest="digest-b.1.1")
    play.is_(b="succeeded", c="succeeded", d="succeeded", r="ready")


def test_the_base_of_a_rework_is_the_attempt_that_it_starts_from():
    play = until_review()
    play.run("review", result=CHANGES)
    found = kernel.sources(play.flow, play.state, "implement")
    assert [source.commit for source in found] == ["commit-implement.1.1", "commit-plan.1.1"]


def test_a_retry_in_the_reworked_generation_starts_from_there_too():
    play = until_review()
    play.run("review", result=CHANGES)
    play.fail("implement", "infra")
    found = kernel.sources(play.flow, play.state, "implement")
    assert found[0].commit == "commit-implement.1.1"


def test_a_sibling_that_still_runs_on_the_old_result_is_stopped_and_runs_again():
    made = flow(agent("a"), command("slow", "a"), agent("r", "a", rework=reworks("a")))
    play = Play(made)
    play.run("a")
    play.start("slow")
    play.run("r", result=CHANGES)
    play.is_(slow="running")
    assert play.row("slow").superseded
    play.run("a")
    play.is_(slow="running")
    play.end("slow")
    play.is_(slow="ready")
    play.run("slow")
    assert [str(row.id) for row in play.attempts("slow")] == ["slow.1.1", "slow.2.1"]
    assert str(play.attempts("slow")[0].state) == "cancelled"


def test_a_sibling_that_was_only_ready_simply_waits_again():
    play = Play(flow(agent("a"), command("late", "a"), agent("r", "a", rework=reworks("a"))))
    play.run("a")
    play.run("r", result=CHANGES)
    play.is_(late="waiting")
    play.run("a")
    play.is_(late="ready")
    assert not play.attempts("late")


def test_an_open_approval_downstream_is_withdrawn_and_asked_again():
    play = Play(flow(agent("a"), approval("ok", "a"), agent("r", "a", rework=reworks("a"))))
    play.run("a")
    play.do(Prepared(attempt=play.dispatch("ok"), base_commit="b"))
    play.run("r", result=CHANGES)
    play.is_(ok="waiting")
    assert [str(row.state) for row in play.state.requests.values()] == ["cancelled"]


def test_failed_and_unreachable_nodes_downstream_get_another_chance():
    made = flow(
        agent("a"),
        command("check", "a"),
        command("after", "check"),
        agent("r", "a", "check", join=joined("all_done"), rework=reworks("a")),
    )
    play = Play(made)
    play.run("a")
    play.fail("check")
    play.is_(after="unreachable")
    play.run("r", result=CHANGES)
    play.is_(check="waiting", after="waiting")
    play.run("a", "check", "after")
    play.run("r", result=APPROVE)
    assert play.graph.state == "succeeded"


def test_a_condition_about_a_missing_field_of_the_own_result_fails_the_node():
    play = until_review()
    play.run("review", result={"summary": "nothing said"})
    assert play.row("review").failure.code == "missing_reference"


def test_an_early_join_does_not_ask_twice_about_the_same_result():
    made = flow(
        agent("a"),
        command("b", "a"),
        command("x"),
        agent("r", "b", "x", join=joined("any_success"), rework=reworks("a")),
    )
    play = Play(made)
    play.run("a", "b", "x")
    play.run("r", result=CHANGES)
    play.is_(r="waiting", a="ready")
    play.run("a")
    play.is_(r="ready")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"feedback": "f", "summary": "s"}, "f"),
        ({"feedback": "  ", "summary": "s"}, "s"),
        ({"verdict": "changes"}, '{"verdict":"changes"}'),
        (["x"], '["x"]'),
    ],
)
def test_feedback_is_what_the_result_says_best(result, text):
    assert feedback_text(result) == text


# --- a person's rework -----------------------------------------------------------------------------------------------


def ended():
    play = Play(flow(command("a"), agent("b", "a"), command("c", "b")))
    play.run("a", "b", "c")
    assert play.graph.state == "succeeded"
    return play


def test_a_person_may_rework_a_node_after_the_graph_has_ended():
    play = ended()
    play.order("rework", node="b", feedback="Shorter, please.")
    play.is_(a="succeeded", b="ready", c="stale")
    assert (str(play.graph.state), play.graph.round) == ("running", 2)
    assert play.row("b").feedback[0].by == "ada"
    assert play.row("b").feedback[0].from_attempt == "b.1.1"


def test_stale_nodes_run_again_after_a_persons_rework():
    play = ended()
    play.order("rework", node="b", feedback="Shorter, please.")
    play.do(GateOpened(round=2))
    play.finish()
    assert [len(play.attempts(key)) for key in "abc"] == [1, 2, 2]
    assert play.graph.state == "succeeded"


def test_a_rework_may_start_from_an_earlier_attempt():
    play = ended()
    play.order("rework", node="b", feedback="one")
    play.do(GateOpened(round=2))
    play.finish()
    play.order("rework", node="b", feedback="two", attempt="b.1.1")
    assert play.row("b").feedback[-1].from_attempt == "b.1.1"
    assert kernel.sources(play.flow, play.state, "b")[0].commit == "commit-b.1.1"


def test_a_rework_of_a_failed_node_may_start_from_its_work_in_progress():
    play = Play(flow(agent("a")))
    play.fail("a", wip_commit="wip")
    play.order("rework", node="a", feedback="try", attempt="a.1.1")
    assert kernel.sources(play.flow, play.state, "a")[0].commit == "wip"


@pytest.mark.parametrize(
    ("arguments", "code", "outcome"),
    [
        ({"node": "b", "feedback": " "}, "no_feedback", "invalid"),
        ({"node": "nope", "feedback": "x"}, "unknown_node", "unknown"),
        ({"feedback": "x"}, "unknown_node", "unknown"),
        ({"node": "b", "feedback": "x", "attempt": "b.9.9"}, "unknown_attempt", "unknown"),
        ({"node": "b", "feedback": "x", "attempt": "a.1.1"}, "unknown_attempt", "unknown"),
    ],
)
def test_a_rework_that_makes_no_sense_is_refused_with_a_reason(arguments, code, outcome):
    play = ended()
    with pytest.raises(Refusal) as refused:
        play.order("rework", **arguments)
    assert (refused.value.code, refused.value.outcome) == (code, outcome)
    assert play.graph.state == "succeeded"


def test_an_approval_takes_no_feedback():
    play = Play(flow(approval("ok")))
    play.do(Prepared(attempt=play.dispatch("ok"), base_commit="b"))
    play.order("answer", request="approval:ok.1.1", answer={"option": "yes"})
    with pytest.raises(Refusal, match="rerun it instead"):
        play.order("rework", node="ok", feedback="x")


def test_a_running_node_cannot_be_reworked():
    play = Play(flow(agent("a")))
    play.start("a")
    with pytest.raises(Refusal) as refused:
        play.order("rework", node="a", feedback="x")
    assert refused.value.code == "node_active"


def test_a_persons_rework_gives_the_rounds_back():
    play = until_review(rounds=1)
    play.run("review", result=CHANGES)
    play.run("implement", "tests")
    play.run("review", result=CHANGES)
    assert play.row("review").failure.code == "rework_exhausted"
    play.order("rework", node="implement", feedback="as the review says")
    play.do(GateOpened(round=2))
    play.run("implement", "tests")
    play.run("review", result=CHANGES)
    play.is_(review="waiting", implement="ready")


def test_a_rework_cannot_start_from_an_attempt_that_left_nothing():
    play = Play(flow(agent("a")))
    play.fail("a")
    with pytest.raises(Refusal) as refused:
        play.order("rework", node="a", feedback="x", attempt="a.1.1")
    assert refused.value.code == "no_commit"


def test_a_target_that_still_runs_is_stopped_before_its_new_generation():
    made = flow(agent("a"), agent("x"), agent("r", "a", "x", join=joined("any_success"), rework=reworks("a")))
    play = Play(made)
    play.start("a")
    play.run("x")
    play.run("r", result=CHANGES)
    play.is_(a="running", r="waiting")
    assert [intent.data["reason"] for intent in play.intents("stop")] == ["superseded"]
    play.end("a")
    play.is_(a="ready")
    assert (play.row("a").generation, play.row("a").feedback[0].generation) == (2, 2)


def test_a_cancel_wins_over_a_rework_that_waits_for_its_target_to_stop():
    made = flow(agent("a"), agent("x"), agent("r", "a", "x", join=joined("any_success"), rework=reworks("a")))
    play = Play(made)
    play.start("a")
    play.run("x")
    play.run("r", result=CHANGES)
    play.order("cancel")
    play.end("a")
    play.is_(a="cancelled", r="cancelled")
    assert play.graph.state == "cancelled"


def test_a_demand_goes_on_when_the_way_from_its_target_has_no_news():
    """What lies between is unreachable at once and stays so: only the target's own end can wake the one who asked."""
    reviewed = agent("review", "between", "side", join=joined("any_success"), rework=reworks("target"))
    play = Play(
        flow(
            command("broken"),
            command("side"),
            agent("target"),
            command("between", "target", "broken", join=joined("all_success")),
            reviewed,
        )
    )
    play.fail("broken")
    play.run("side", "target")
    play.run("review", result={"verdict": "changes"})
    play.is_(between="unreachable", review="waiting", target="ready")
    play.run("target")
    play.is_(review="ready")
