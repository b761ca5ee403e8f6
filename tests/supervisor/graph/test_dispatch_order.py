import pytest

from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.topology import topology
from sandbox_supervisor.protocol.flow import Rework
from sandbox_supervisor.protocol.spec import DriverEntry, DriverProtocol, Limits
from tests.supervisor.graph.play import Play, agent, approval, command, flow, merge

GIB = 1024**3


def drivers(**reserves):
    return {
        name: DriverEntry(name=name, protocol=DriverProtocol.ACP, memory_reserve=reserve)
        for name, reserve in reserves.items()
    }


def test_the_longest_way_to_an_end_comes_first():
    made = flow(command("short"), command("long"), command("x", "long"), command("y", "x"))
    assert Play(made).ready() == ["long", "short"]


def test_among_equals_definition_order_decides():
    assert Play(flow(*map(command, "dbca"))).ready() == list("dbca")


def test_no_more_than_max_parallel_attempts_are_dispatched():
    play = Play(flow(*map(command, "abc")), limits=Limits(max_parallel_attempts=2))
    assert play.ready() == ["a", "b"]
    play.start("a")
    assert play.ready() == ["b"]
    play.start("b")
    assert play.ready() == []
    play.succeed("a")
    assert play.ready() == ["c"]


def test_an_attempt_that_waits_for_a_person_keeps_its_slot():
    play = Play(flow(agent("a"), command("b")), limits=Limits(max_parallel_attempts=1))
    play.start("a")
    play.ask("a")
    assert play.ready() == []


def test_memory_reserves_are_held_against_the_limit():
    made = flow(agent("a", driver="big"), agent("b", driver="big"), agent("c", driver="big"))
    play = Play(made, limits=Limits(memory=5 * GIB), drivers=drivers(big=2 * GIB))
    assert play.ready() == ["a", "b"]
    play.start("a")
    assert play.ready() == ["b"]


def test_the_first_agent_that_does_not_fit_holds_back_those_behind_it_but_not_commands():
    made = flow(agent("a", driver="mid"), agent("b", driver="big"), agent("c", driver="small"), command("d"))
    play = Play(made, limits=Limits(memory=4 * GIB), drivers=drivers(big=3 * GIB, mid=2 * GIB, small=1))
    assert play.ready() == ["a", "d"]


def test_an_agent_that_would_not_even_fit_alone_runs_alone():
    made = flow(agent("a", driver="huge"), agent("b", driver="huge"))
    play = Play(made, limits=Limits(memory=GIB), drivers=drivers(huge=9 * GIB))
    assert play.ready() == ["a"]
    play.start("a")
    assert play.ready() == []


def test_without_a_memory_limit_reserves_do_not_count():
    made = flow(agent("a", driver="huge"), agent("b", driver="huge"))
    assert Play(made, drivers=drivers(huge=9 * GIB)).ready() == ["a", "b"]


def test_a_merging_agents_reserve_counts_like_any_other():
    made = flow(merge("m", by="big"), agent("b", driver="big"))
    play = Play(made, limits=Limits(memory=3 * GIB), drivers=drivers(big=2 * GIB))
    assert play.ready() == ["m"]


def test_approvals_come_in_the_list_without_taking_a_slot():
    play = Play(flow(command("a"), approval("ok"), command("b")), limits=Limits(max_parallel_attempts=1))
    assert play.ready() == ["a", "ok"]


def test_finally_nodes_come_after_everything_else():
    play = Play(flow(command("a"), last=[command("z"), command("y", "z")]))
    assert play.ready() == ["a"]
    play.run("a")
    assert play.ready() == ["z"]
    play.run("z")
    assert play.ready() == ["y"]


def test_a_failure_in_finally_changes_no_outcome():
    play = Play(flow(command("a"), last=[command("z"), command("y", "z")]))
    play.run("a")
    play.fail("z")
    play.is_(z="failed", y="unreachable")
    assert play.graph.state == "succeeded"


def test_finally_runs_after_a_failed_graph_too():
    play = Play(flow(command("a"), last=[command("z")]))
    play.fail("a")
    assert play.graph.state == "running"
    play.run("z")
    assert play.graph.state == "failed"
    assert play.graph.failure.facts == {"nodes": ["a"], "code": "broken"}


def test_the_terminal_word_comes_once_and_wants_the_archive():
    play = Play(flow(command("a"), command("b")))
    play.run("a", "b")
    words = [event.data["state"] for event in play.events if event.kind == "graph.state"]
    assert words == ["succeeded"]
    assert [intent.id for intent in play.intents("archive")] == ["archive:1"]


# --- what a flow must be ---------------------------------------------------------------------------------------------


def test_descendants_and_ancestors_are_found_through_any_number_of_edges():
    shape = topology(flow(command("a"), command("b", "a"), command("c", "b"), command("d")))
    assert shape.descendants("a") == {"b", "c"}
    assert shape.ancestors("c") == {"a", "b"}
    assert shape.descendants("d") == set()


def test_a_chain_of_a_thousand_nodes_needs_no_deep_stack():
    nodes = [command("n0"), *(command(f"n{at}", f"n{at - 1}") for at in range(1, 1000))]
    play = Play(flow(*nodes))
    play.fail("n0")
    assert play.graph.state == "failed"
    assert topology(play.flow).length["n0"] == 1000


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (flow(command("a", "b"), command("b", "a")), "cycle through a, b"),
        (flow(command("a", "a")), "cycle"),
        (flow(command("a", "x")), "does not exist"),
        (flow(command("a"), command("a")), "same key"),
        (flow(command("a", "z"), last=[command("z")]), "needs a node of finally"),
        (flow(command("a"), command("b", rework=Rework(node="a", when=(), max_rounds=1))), "none of its ancestors"),
        (
            flow(command("a"), last=[command("z", "a", rework=Rework(node="a", when=(), max_rounds=1))]),
            "cannot ask for rework",
        ),
    ],
)
def test_a_flow_that_is_no_graph_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        topology(made)


@pytest.mark.parametrize(("key", "code"), [("nope", "unknown_node"), ("b", "not_ready")])
def test_only_a_ready_node_of_the_flow_is_dispatched(key, code):
    play = Play(flow(command("a"), command("b", "a")))
    with pytest.raises(Refusal) as refused:
        play.dispatch(key)
    assert refused.value.code == code
