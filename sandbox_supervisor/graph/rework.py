"""Do finished work again: on a node's own demand, with feedback. What it affects is shared with reruns."""

from typing import Any

from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.joins import is_settled
from sandbox_supervisor.graph.moves import end_node, move_node, reset_node, stop_attempt
from sandbox_supervisor.graph.rows import Feedback, StalePlan
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.messages import Failure
from sandbox_supervisor.protocol.states import FailureClass, NodeState


def ask(d: Draft, key: str, result: Any) -> None:
    """Send the target of ``key``'s rework back with feedback, or fail ``key`` when its rounds are used up.

    ``key`` waits anew, and so do its other dependants.
    """
    spec = d.spec(key).rework
    if spec is None:
        raise ValueError(f"node {key} has no rework")
    rounds = d.node(key).rounds
    if rounds >= spec.max_rounds:
        message = f"Node {key} still asks for rework of {spec.node} after {rounds} of {spec.max_rounds} rounds."
        failure = Failure(failure_class=FailureClass.CHECK_FAILED, code="rework_exhausted", message=message)
        end_node(d, key, NodeState.FAILED, failure=failure, result=result)
        return
    d.set_node(key, rounds=rounds + 1)
    told = {"round": rounds + 1, "max_rounds": spec.max_rounds}
    send_back(d, spec.node, by=key, text=feedback_text(result), from_attempt=d.node(spec.node).winner, told=told)
    invalidate(d, {spec.node}, StalePlan.RUN, but=key)
    reset_node(d, key)


def feedback_text(result: Any) -> str:
    """Give the words of a demand: the result's ``feedback``, else its ``summary``, else all of it as JSON."""
    for name in ("feedback", "summary"):
        if isinstance(result, dict) and isinstance(result.get(name), str) and result[name].strip():
            return str(result[name])
    return codec.canonical(result).decode()


def send_back(
    d: Draft, key: str, *, by: str, text: str, from_attempt: str | None, told: dict[str, Any] | None = None
) -> None:
    """Give a node a new generation with feedback. A live attempt is stopped first."""
    row = d.node(key)
    generation = row.generation + row.fired
    feedback = Feedback(by=by, text=text, from_attempt=from_attempt, generation=generation)
    d.set_node(key, feedback=(*row.feedback, feedback))
    d.set_graph(rework_rounds=d.graph.rework_rounds + 1)
    data = {"by": by, "node": key, "generation": generation, "feedback": text, **(told or {})}
    d.event(EventKind.REWORK_ASKED, data, node=key)
    restart(d, key)


def restart(d: Draft, key: str) -> None:
    """Put a node back to waiting, at once or when its live attempt has ended."""
    row = d.node(key)
    if row.active:
        d.set_node(key, superseded=True)
        stop_attempt(d, row.active, "superseded")
    if d.node(key).active is None:
        reset_node(d, key)


def invalidate(d: Draft, roots: set[str], plan: StalePlan, *, but: str | None = None) -> None:
    """Deal with everything downstream of ``roots``: successes become stale, every other end and every live attempt
    goes back to waiting. ``finally`` nodes are not part of it."""
    downstream = d.topology.descendants(*roots) - d.topology.finals - roots - {but}
    for key in sorted(downstream, key=d.topology.order.__getitem__):
        row = d.node(key)
        if row.state in (NodeState.SUCCEEDED, NodeState.STALE):
            _make_stale(d, key, plan)
        elif row.active or row.state is NodeState.READY or is_settled(row):
            restart(d, key)


def _make_stale(d: Draft, key: str, plan: StalePlan) -> None:
    if d.node(key).state is NodeState.STALE:
        d.set_node(key, stale=plan)
        d.touch(key)
    else:
        move_node(d, key, NodeState.STALE, stale=plan)
