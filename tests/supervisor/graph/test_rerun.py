import pytest

from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.facts import GateOpened
from sandbox_supervisor.protocol.flow import Retry
from tests.supervisor.graph.play import Play, agent, command, flow, joined, when


def opened(play):
    play.do(GateOpened(round=play.graph.round))
    return play


def test_a_rerun_of_a_failed_node_touches_neither_ancestor_nor_sibling():
    play = Play(flow(command("a"), command("b", "a"), command("c", "a")))
    play.run("a", "b")
    play.fail("c")
    play.order("rerun", nodes=("c",))
    opened(play).run("c")
    assert [len(play.attempts(key)) for key in "abc"] == [1, 1, 2]
    assert play.graph.state == "succeeded"


def test_descendants_that_were_unreachable_run_again_by_themselves_exactly_once():
    play = Play(flow(command("a"), command("b", "a"), command("c", "b")))
    play.fail("a")
    play.order("rerun", nodes=("a",))
    play.is_(a="ready", b="waiting", c="waiting")
    opened(play).finish()
    assert [len(play.attempts(key)) for key in "abc"] == [2, 1, 1]
    assert play.graph.state == "succeeded"


def test_no_dependant_starts_on_the_old_result():
    play = Play(flow(command("a"), command("b", "a"), command("c", "b", join=joined("all_done"))))
    play.run("a")
    play.fail("b")
    play.run("c")
    play.order("rerun", nodes=("a", "b"), run_stale=True)
    opened(play)
    assert play.ready() == ["a"]
    play.run("a")
    assert play.ready() == ["b"]


def test_a_rerun_reopens_the_graph_in_another_round_and_says_what_it_affects():
    play = Play(flow(command("a"), command("b", "a"), command("c", "a", join=joined("all_done"))))
    play.fail("a")
    play.run("c")
    play.order("rerun", nodes=("a",))
    (event,) = [event for event in play.events if event.kind == "graph.reopened"]
    assert event.data == {"round": 2, "nodes": ["a"], "waiting": ["b"], "stale": ["c"], "actor": "ada"}
    assert (str(play.graph.state), play.graph.round, play.graph.failure) == ("running", 2, None)


def test_nothing_is_dispatched_before_the_gate_has_opened_for_the_new_round():
    play = Play(flow(command("a")))
    play.fail("a")
    play.order("rerun", nodes=("a",))
    assert play.ready() == []
    play.do(GateOpened(round=1))
    assert play.ready() == []
    play.do(GateOpened(round=2))
    assert play.ready() == ["a"]


def test_succeeded_descendants_become_stale_and_keep_their_result_unless_asked():
    play = Play(flow(command("a"), command("b", "a"), command("c", "b")))
    play.run("a", "b", "c")
    play.order("rerun", nodes=("a",))
    play.is_(b="stale", c="stale")
    opened(play).finish()
    play.is_(a="succeeded", b="stale", c="succeeded")
    assert [len(play.attempts(key)) for key in "abc"] == [2, 1, 1]
    assert play.row("b").winner == "b.1.1"
    assert play.graph.state == "succeeded"


def test_stale_descendants_run_again_when_asked():
    play = Play(flow(command("a"), command("b", "a"), command("c", "b")))
    play.run("a", "b", "c")
    play.order("rerun", nodes=("a",), run_stale=True)
    opened(play).finish()
    assert [len(play.attempts(key)) for key in "abc"] == [2, 2, 2]
    play.is_(a="succeeded", b="succeeded", c="succeeded")


def test_unchanged_output_makes_stale_descendants_good_again():
    play = Play(flow(command("a"), command("b", "a"), command("c", "b")))
    play.run("a", "b", "c")
    play.order("rerun", nodes=("a",), run_stale=True)
    opened(play).run("a", digest="digest-a.1.1")
    play.is_(b="succeeded", c="succeeded")
    assert play.graph.state == "succeeded"


def test_a_waiting_node_behind_a_stale_one_runs_on_its_old_result():
    play = Play(flow(command("a"), command("b", "a"), command("c", "b")))
    play.run("a", "b")
    play.fail("c")
    play.order("rerun", nodes=("a",))
    play.is_(b="stale", c="waiting")
    opened(play).run("a")
    play.is_(b="stale", c="ready")
    play.run("c")
    assert play.graph.state == "succeeded"


def test_a_stale_node_can_be_rerun_later():
    play = Play(flow(command("a"), command("b", "a")))
    play.run("a", "b")
    play.order("rerun", nodes=("a",))
    opened(play).run("a")
    play.order("rerun", nodes=("b",))
    opened(play).run("b")
    play.is_(b="succeeded")
    assert play.graph.round == 3


def test_a_failed_node_can_be_rerun_while_an_unrelated_branch_runs():
    play = Play(flow(command("a"), command("slow"), command("b", "a")))
    play.start("slow")
    play.fail("a")
    play.order("rerun", nodes=("a",))
    play.is_(a="ready", slow="running", b="waiting")
    assert play.graph.round == 1
    play.run("a", "b")
    play.succeed("slow")
    assert [len(play.attempts(key)) for key in ("a", "b", "slow")] == [2, 1, 1]
    assert play.graph.state == "succeeded"


def test_a_node_whose_descendants_are_at_work_is_not_rerun():
    play = Play(flow(command("a"), command("b", "a")))
    play.run("a")
    play.start("b")
    with pytest.raises(Refusal) as refused:
        play.order("rerun", nodes=("a",))
    assert (refused.value.code, refused.value.facts) == ("descendants_active", {"nodes": ["b"]})


def test_a_node_that_has_not_ended_is_not_rerun():
    play = Play(flow(command("a"), command("b", "a")))
    play.start("a")
    with pytest.raises(Refusal) as refused:
        play.order("rerun", nodes=("a", "b"))
    assert (refused.value.code, refused.value.facts) == ("node_active", {"nodes": ["a", "b"]})


@pytest.mark.parametrize(
    ("nodes", "code"), [((), "no_nodes"), (("a", "nope"), "unknown_node"), (("",), "unknown_node")]
)
def test_a_rerun_of_nothing_or_of_a_stranger_is_refused(nodes, code):
    play = Play(flow(command("a")))
    play.run("a")
    with pytest.raises(Refusal) as refused:
        play.order("rerun", nodes=nodes)
    assert refused.value.code == code


def test_a_graph_that_is_being_cancelled_is_not_rerun():
    play = Play(flow(command("a"), command("b")))
    play.run("a")
    play.start("b")
    play.order("cancel")
    with pytest.raises(Refusal) as refused:
        play.order("rerun", nodes=("a",))
    assert refused.value.code == "cancelling"


def test_a_cancelled_graph_can_be_rerun_and_cancelled_descendants_wait_again():
    play = Play(flow(command("a"), command("b", "a"), command("other")))
    play.start("a")
    play.order("cancel")
    play.end("a")
    play.is_(a="cancelled", b="cancelled", other="cancelled")
    play.order("rerun", nodes=("a",))
    play.is_(a="ready", b="waiting", other="cancelled")
    opened(play).run("a", "b")
    assert play.graph.state == "failed"
    assert play.graph.failure.facts["nodes"] == ["other"]


def test_a_skipped_descendant_is_asked_its_condition_again():
    play = Play(flow(command("a"), command("b", "a", when=(when("a.result.ok", "eq", True),))))
    play.run("a", result={"ok": False})
    play.is_(b="skipped")
    play.order("rerun", nodes=("a",))
    opened(play).run("a", result={"ok": True})
    play.is_(b="ready")
    assert play.row("b").generation == 2


def test_a_node_that_never_ran_keeps_its_generation():
    play = Play(flow(command("a"), command("b", "a")))
    play.fail("a")
    play.order("rerun", nodes=("a",))
    assert (play.row("a").generation, play.row("b").generation) == (2, 1)


def test_finally_nodes_run_again_in_every_round():
    play = Play(flow(command("a"), last=[command("clean")]))
    play.fail("a")
    play.run("clean")
    play.order("rerun", nodes=("a",))
    play.is_(clean="waiting")
    opened(play).finish()
    assert [str(row.id) for row in play.attempts("clean")] == ["clean.1.1", "clean.2.1"]
    assert play.graph.state == "succeeded"


def test_a_finally_node_can_be_rerun_alone():
    play = Play(flow(command("a"), last=[command("clean"), command("mail")]))
    play.run("a", "mail")
    play.fail("clean")
    play.order("rerun", nodes=("clean",))
    opened(play).finish()
    assert [len(play.attempts(key)) for key in ("a", "clean", "mail")] == [1, 2, 1]
    assert play.graph.state == "succeeded"


def test_nothing_is_rerun_while_the_finally_nodes_run():
    play = Play(flow(command("a"), last=[command("clean")]))
    play.fail("a")
    with pytest.raises(Refusal) as refused:
        play.order("rerun", nodes=("a",))
    assert refused.value.code == "finalising"


def test_a_rerun_of_several_nodes_runs_them_in_the_order_of_their_edges():
    play = Play(flow(command("a"), command("b", "a"), command("c", "b")))
    play.run("a", "b", "c")
    play.order("rerun", nodes=("c", "a"), run_stale=True)
    opened(play).finish()
    assert [len(play.attempts(key)) for key in "abc"] == [2, 2, 2]


def test_a_rerun_uses_a_budget_of_retries_of_its_own():
    play = Play(flow(agent("a", retry=Retry(infra_limit=1))))
    play.fail("a", "infra")
    play.tick(9)
    play.fail("a", "infra")
    play.order("rerun", nodes=("a",))
    opened(play).fail("a", "infra")
    play.is_(a="ready")


def test_a_rerun_that_fails_leaves_unreached_what_could_not_run():
    play = Play(flow(command("a"), command("b", "a")))
    play.run("a", "b")
    play.order("rerun", nodes=("a",), run_stale=True)
    opened(play).fail("a")
    play.is_(a="failed", b="unreachable")
    assert play.graph.state == "failed"


def test_a_node_that_fails_again_on_other_inputs_is_news_to_who_tolerates_it():
    play = Play(flow(command("a"), command("b", "a"), command("c", "b", join=joined("all_done"))))
    play.run("a")
    play.fail("b")
    play.run("c")
    play.order("rerun", nodes=("a",))
    opened(play).run("a", digest="other")
    play.fail("b")
    play.is_(c="stale")


def test_a_node_that_fails_again_on_the_same_inputs_changes_nothing_for_who_tolerates_it():
    play = Play(flow(command("a"), command("b", "a"), command("c", "b", join=joined("all_done"))))
    play.run("a", digest="same")
    play.fail("b")
    play.run("c")
    play.order("rerun", nodes=("a",))
    opened(play).run("a", digest="same")
    play.fail("b")
    play.is_(c="succeeded")
