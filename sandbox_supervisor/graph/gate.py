"""What the control plane says about the round: it may begin, it is over."""

from sandbox_supervisor.graph.cancel import cancel_graph
from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.facts import GateClosed, GateOpened
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.messages import CancelMode
from sandbox_supervisor.protocol.states import GRAPH_ENDED


def opened(d: Draft, fact: GateOpened) -> None:
    """Open the gate of this round, once. Another round's word, or one after the end, means nothing."""
    graph = d.graph
    if fact.round != graph.round or graph.gate_round >= fact.round or graph.stopped or graph.state in GRAPH_ENDED:
        return
    d.set_graph(gate_round=fact.round)
    d.event(EventKind.GATE_OPENED, {"round": fact.round})


def closed(d: Draft, fact: GateClosed) -> None:
    """Kill everything and start nothing more in this round, ``finally`` included. Nothing to do after the end."""
    if d.graph.stopped is not None or d.graph.state in GRAPH_ENDED:
        return
    d.set_graph(stopped=fact.reason)
    d.event(EventKind.GATE_CLOSED, {"reason": fact.reason})
    cancel_graph(d, CancelMode.KILL, "stopped")
