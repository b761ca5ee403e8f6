"""A person's wish to have ended nodes run again, also after the graph has ended."""

from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.joins import is_settled
from sandbox_supervisor.graph.moves import reset_node
from sandbox_supervisor.graph.rework import invalidate, restart, send_back
from sandbox_supervisor.graph.rows import StalePlan
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.flow import NodeKind
from sandbox_supervisor.protocol.messages import Command, OutcomeCode
from sandbox_supervisor.protocol.states import GRAPH_ENDED, GraphState, NodeState


def rerun(d: Draft, command: Command) -> None:
    """Run nodes again on the same inputs. Raises Refusal. Ancestors and siblings stay as they are."""
    roots = set(command.nodes)
    if not roots:
        raise Refusal("no_nodes", "A rerun names at least one node.", outcome=OutcomeCode.INVALID)
    _check(d, roots)
    plan = StalePlan.RUN if command.run_stale else StalePlan.KEEP
    _reopen(d, roots, command.actor)
    for key in _ordered(d, roots):
        restart(d, key)
    _spread(d, roots, plan)


def rework(d: Draft, command: Command) -> None:
    """Run one node again with feedback, starting from one of its attempts. Raises Refusal."""
    key, feedback = command.node or "", (command.feedback or "").strip()
    if not feedback:
        raise Refusal("no_feedback", "A rework says what is to be done differently.", outcome=OutcomeCode.INVALID)
    _check(d, {key})
    if key in d.topology.finals or d.spec(key).kind in (NodeKind.APPROVAL, NodeKind.DELIVERY):
        message = f"Node {key} cannot take feedback; rerun it instead."
        raise Refusal("not_reworkable", message, {"node": key}, outcome=OutcomeCode.INVALID)
    start = _start(d, key, command.attempt)
    _reopen(d, {key}, command.actor)
    send_back(d, key, by=command.actor, text=feedback, from_attempt=start)
    _spread(d, {key}, StalePlan.RUN)


def _start(d: Draft, key: str, attempt: str | None) -> str | None:
    if attempt is None:
        return d.node(key).winner
    row = d.state.attempts.get(attempt)
    if row is None or row.id.node != key:
        facts = {"attempt": attempt, "node": key}
        raise Refusal("unknown_attempt", f"Node {key} has no attempt {attempt}.", facts, outcome=OutcomeCode.UNKNOWN)
    if not (row.result_commit or row.wip_commit):
        message = f"Attempt {attempt} left no commit to start from."
        raise Refusal("no_commit", message, {"attempt": attempt}, outcome=OutcomeCode.INVALID)
    return attempt


def _check(d: Draft, roots: set[str]) -> None:
    unknown = sorted(roots - d.topology.nodes.keys())
    if unknown:
        message = f"The flow has no node {', '.join(unknown)}."
        raise Refusal("unknown_node", message, {"nodes": unknown}, outcome=OutcomeCode.UNKNOWN)
    graph = d.graph
    if graph.state is GraphState.CANCELLING:
        raise Refusal("cancelling", "The graph is being cancelled; wait until it has ended.")
    ended = graph.state in GRAPH_ENDED
    if not ended and (graph.in_finally or roots & d.topology.finals):
        raise Refusal("finalising", "The finally nodes run once the graph has ended; wait until they are through.")
    active = [key for key in _ordered(d, roots) if not is_settled(d.node(key))]
    if active:
        message = f"Not ended yet: {', '.join(active)}. Cancel the attempt first, or wait."
        raise Refusal("node_active", message, {"nodes": active})
    busy = [key for key in _ordered(d, d.topology.descendants(*roots)) if _is_busy(d, key)]
    if busy:
        message = f"Nodes that depend on it are at work: {', '.join(busy)}. Cancel them first, or wait."
        raise Refusal("descendants_active", message, {"nodes": busy})


def _is_busy(d: Draft, key: str) -> bool:
    return d.node(key).active is not None or d.node(key).state is NodeState.READY


def _ordered(d: Draft, keys: set[str]) -> list[str]:
    return sorted(keys, key=d.topology.index.__getitem__)


def _reopen(d: Draft, roots: set[str], actor: str) -> None:
    """Begin another round of an ended graph; its gate has to be opened again."""
    if d.graph.state not in GRAPH_ENDED:
        return
    below = _ordered(d, d.topology.descendants(*roots) - roots - d.topology.finals)
    kept = (NodeState.SUCCEEDED, NodeState.STALE)
    told = {
        "round": d.graph.round + 1,
        "nodes": _ordered(d, roots),
        "waiting": [key for key in below if d.node(key).state not in kept],
        "stale": [key for key in below if d.node(key).state in kept],
        "actor": actor,
    }
    d.event(EventKind.GRAPH_REOPENED, told)
    fresh = {"failure": None, "outcome": None, "in_finally": False, "stopped": None, "cancel_mode": None}
    d.move_graph(GraphState.RUNNING, round=d.graph.round + 1, **fresh)
    _reset_finals(d, roots)


def _reset_finals(d: Draft, roots: set[str]) -> None:
    finals = d.topology.finals
    again = finals if roots - finals else d.topology.descendants(*roots) & finals
    for key in _ordered(d, set(again) - roots):
        if d.node(key).state is not NodeState.WAITING:
            reset_node(d, key)


def _spread(d: Draft, roots: set[str], plan: StalePlan) -> None:
    """Deal with what depends on ``roots``; a person's wish gives every node there its rework rounds anew."""
    invalidate(d, roots, plan)
    for key in roots | d.topology.descendants(*roots):
        d.set_node(key, rounds=0)
