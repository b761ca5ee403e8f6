"""Ending a graph or an attempt early. The wish is committed first; the word *cancelled* comes when nothing lives."""

from sandbox_supervisor.graph.draft import Draft, is_live
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.moves import end_node, stop_attempt
from sandbox_supervisor.graph.rows import StalePlan
from sandbox_supervisor.protocol.messages import CancelMode, Command, OutcomeCode
from sandbox_supervisor.protocol.states import GRAPH_ENDED, GraphState, NodeState

_STRENGTH = {CancelMode.DRAIN: 1, CancelMode.CANCEL: 2, CancelMode.KILL: 3}
_IDLE = (NodeState.WAITING, NodeState.READY)


def cancel(d: Draft, command: Command) -> None:
    """Cancel the graph, or hasten a cancel that is under way. Raises Refusal."""
    graph = d.graph
    if graph.state in GRAPH_ENDED:
        raise Refusal("graph_ended", f"The graph has already ended: {graph.state}.", {"state": graph.state})
    if graph.cancel_mode and _STRENGTH[command.mode] <= _STRENGTH[CancelMode(graph.cancel_mode)]:
        facts = {"mode": graph.cancel_mode}
        raise Refusal("already_cancelling", f"The graph is already being cancelled ({graph.cancel_mode}).", facts)
    cancel_graph(d, command.mode, "cancelled")


def cancel_graph(d: Draft, mode: CancelMode, reason: str) -> None:
    """Start nothing more; ``drain`` lets running attempts finish, ``cancel`` stops them, ``kill`` also leaves out
    ``finally``. Nodes of ``finally`` that already run are stopped by ``kill`` only."""
    if d.graph.in_finally:
        d.set_graph(outcome=GraphState.CANCELLED, failure=None)
    if d.graph.state is GraphState.CANCELLING:
        d.set_graph(cancel_mode=mode)
    else:
        d.move_graph(GraphState.CANCELLING, cancel_mode=mode)
    for key in d.topology.nodes:
        if key not in d.topology.finals or mode is CancelMode.KILL:
            _cancel_node(d, key, mode, reason)


def _cancel_node(d: Draft, key: str, mode: CancelMode, reason: str) -> None:
    row = d.node(key)
    if row.active:
        if mode is not CancelMode.DRAIN:
            stop_attempt(d, row.active, reason, kill=mode is CancelMode.KILL)
        row = d.node(key)
        if row.active is None:
            end_node(d, key, NodeState.CANCELLED, reason=reason)
    elif row.state in _IDLE:
        end_node(d, key, NodeState.CANCELLED, reason=reason)
    elif row.state is NodeState.STALE and row.stale is not StalePlan.KEPT:
        d.set_node(key, stale=StalePlan.KEPT)
        d.touch(key)


def cancel_attempt(d: Draft, command: Command) -> None:
    """Stop one attempt; it is not tried again. Raises Refusal."""
    row = d.state.attempts.get(command.attempt or "")
    facts = {"attempt": command.attempt}
    if row is None:
        raise Refusal("unknown_attempt", f"There is no attempt {command.attempt}.", facts, outcome=OutcomeCode.UNKNOWN)
    if not is_live(row):
        raise Refusal("attempt_ended", f"Attempt {row.id} has already ended: {row.state}.", facts)
    if row.cancel_reason is not None:
        raise Refusal("already_stopping", f"Attempt {row.id} is already being stopped ({row.cancel_reason}).", facts)
    stop_attempt(d, str(row.id), "person")
    if d.node(row.id.node).active is None:
        end_node(d, row.id.node, NodeState.CANCELLED, reason="person")
