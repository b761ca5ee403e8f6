"""After every fact: fire the joins that can fire, refresh stale nodes, and end the graph when nothing is left to do."""

from typing import Any

from sandbox_supervisor.graph import conditions, joins
from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.joins import Verdict, is_settled
from sandbox_supervisor.graph.moves import end_node, move_node, reset_node, stop_attempt
from sandbox_supervisor.graph.rows import NodeRow, StalePlan
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.flow import OnSatisfied
from sandbox_supervisor.protocol.messages import CancelMode, Failure
from sandbox_supervisor.protocol.states import GRAPH_ENDED, FailureClass, GraphState, NodeState


def settle(d: Draft) -> None:
    """Bring the graph to rest: until no join can fire and the graph has ended or waits for something outside."""
    _evaluate_dirty(d)
    if d.graph.state in GRAPH_ENDED:
        return
    if not d.graph.in_finally and _body_is_over(d):
        _leave_body(d)
        _evaluate_dirty(d)
    if d.graph.in_finally and all(is_settled(d.node(key)) for key in d.topology.finals):
        _end(d)


def _evaluate_dirty(d: Draft) -> None:
    while d.dirty:
        batch = sorted(d.dirty, key=d.topology.order.__getitem__)
        d.dirty.clear()
        for key in batch:
            if _may_move(d, key):
                _evaluate(d, key)


def _may_move(d: Draft, key: str) -> bool:
    graph = d.graph
    if key in d.topology.finals:
        return graph.in_finally and graph.cancel_mode != CancelMode.KILL
    return graph.state in (GraphState.RUNNING, GraphState.PAUSED) and not graph.in_finally


def _evaluate(d: Draft, key: str) -> None:
    row = d.node(key)
    if row.state is NodeState.WAITING:
        _try_join(d, key)
    elif row.state is NodeState.STALE and row.stale is not StalePlan.KEPT:
        _refresh(d, row)


# --- joins -----------------------------------------------------------------------------------------------------------


def _try_join(d: Draft, key: str) -> None:
    spec = d.spec(key)
    if spec.rework and d.node(key).rounds and not is_settled(d.node(spec.rework.node)):
        return  # an early join must not fire again on what it has just sent back
    needs = [d.node(need) for need in spec.needs]
    match joins.judge(spec.join, joins.count(needs)):
        case Verdict.FIRE:
            _fire(d, key, needs)
        case Verdict.SKIP:
            consumed = _consumed(needs)
            _skip(d, key, consumed, "needs_skipped")
        case Verdict.UNREACHABLE:
            end_node(d, key, NodeState.UNREACHABLE, reason=_why_unreachable(needs))


def _why_unreachable(needs: list[NodeRow]) -> str:
    missing = [f"{row.key} {row.state}" for row in needs if is_settled(row) and row.state is not NodeState.SUCCEEDED]
    return "needs: " + ", ".join(missing)


def _consumed(needs: list[NodeRow]) -> dict[str, str]:
    return {row.key: mark(row) for row in needs if is_settled(row)}


def mark(row: NodeRow) -> str:
    """Give what stands for a settled node's output: equal marks mean that a consumer sees no difference.

    A node that failed on other inputs than before is another input to whoever tolerates its failure.
    """
    if row.output_digest:
        return row.output_digest
    return f"outcome:{row.outcome}:{codec.digest(row.consumed)}" if row.consumed else f"outcome:{row.outcome}"


def _fire(d: Draft, key: str, needs: list[NodeRow]) -> None:
    spec = d.spec(key)
    consumed = _consumed(needs)
    d.set_node(key, fired=True, consumed=consumed)
    if spec.join.on_satisfied is OnSatisfied.CANCEL_REST:
        _cancel_rest(d, needs)
    judgement = conditions.judge(spec.when, lambda reference: _look_up(d, reference))
    if judgement.problem:
        end_node(d, key, NodeState.FAILED, failure=wrong_condition(judgement))
    elif not judgement.holds:
        _skip(d, key, consumed, f"condition: {judgement.reference}")
    else:
        move_node(d, key, NodeState.READY)


def _skip(d: Draft, key: str, consumed: dict[str, str], reason: str) -> None:
    digest = codec.digest({"outcome": "skipped", "consumed": consumed})
    end_node(d, key, NodeState.SKIPPED, reason=reason, fired=True, consumed=consumed, output_digest=digest)


def _cancel_rest(d: Draft, needs: list[NodeRow]) -> None:
    for row in needs:
        if is_settled(row):
            continue
        if row.active:
            stop_attempt(d, row.active, "join_satisfied")
        if d.node(row.key).active is None:
            end_node(d, row.key, NodeState.CANCELLED, reason="join_satisfied")


def _look_up(d: Draft, reference: str) -> Any:
    head, _, rest = reference.partition(".")
    path = rest.split(".")
    if head == "inputs":
        return conditions.dig(d.graph.inputs, path)
    if head not in d.topology.nodes or not is_settled(d.node(head)):
        return conditions.MISSING
    row = d.node(head)
    if path == ["outcome"]:
        return row.outcome
    if row.state in (NodeState.SUCCEEDED, NodeState.STALE) and path[0] == "result":
        return conditions.dig(row.result, path[1:])
    return conditions.MISSING


def wrong_condition(judgement: conditions.Judgement) -> Failure:
    """Name what is wrong with a condition: its reference leads nowhere, or the value cannot be compared."""
    texts = {
        "missing_reference": "leads to no value: the node was skipped, has not run, or its result lacks that field",
        "condition_type": "is not a number, so that it cannot be compared with gt or lt",
    }
    code = judgement.problem or ""
    message = f"The condition's reference {judgement.reference} {texts[code]}."
    facts = {"reference": judgement.reference}
    return Failure(failure_class=FailureClass.CHECK_FAILED, code=code, message=message, facts=facts)


# --- stale nodes -----------------------------------------------------------------------------------------------------


def _refresh(d: Draft, row: NodeRow) -> None:
    needs = [d.node(need) for need in d.spec(row.key).needs]
    if not all(is_settled(need) for need in needs):
        return
    changed = [need.key for need in needs if row.consumed.get(need.key, mark(need)) != mark(need)]
    if not changed:
        move_node(d, row.key, NodeState.SUCCEEDED, reason="cutoff", stale=None)
        d.event(EventKind.NODE_CUTOFF, {"upstream": [need.key for need in needs]}, node=row.key)
    elif row.stale is StalePlan.RUN:
        reset_node(d, row.key)
    else:
        d.set_node(row.key, stale=StalePlan.KEPT)
        d.touch(row.key)


# --- the end ---------------------------------------------------------------------------------------------------------


def gate_is_open(d: Draft) -> bool:
    """The control plane has said ``running`` for this round and has not said ``ended``."""
    return d.graph.gate_round >= d.graph.round and d.graph.stopped is None


def _body_is_over(d: Draft) -> bool:
    if d.graph.state is not GraphState.CANCELLING and not gate_is_open(d):
        return False
    return all(is_settled(d.node(key)) for key in reversed(d.topology.body))  # what is unsettled stands late


def _leave_body(d: Draft) -> None:
    failure = None
    if d.graph.state is GraphState.CANCELLING:
        outcome = GraphState.CANCELLED
    else:
        failure = _graph_failure(d)
        outcome = GraphState.FAILED if failure else GraphState.SUCCEEDED
    d.set_graph(in_finally=True, outcome=outcome, failure=failure)
    finals = [key for key in d.topology.nodes if key in d.topology.finals]
    if d.graph.cancel_mode == CancelMode.KILL or not gate_is_open(d):
        for key in finals:
            if not is_settled(d.node(key)):
                end_node(d, key, NodeState.CANCELLED, reason="no_finally")
    d.dirty.update(finals)


def _end(d: Draft) -> None:
    outcome = d.graph.outcome or GraphState.FAILED
    d.move_graph(outcome, in_finally=False)
    d.want(EffectKind.ARCHIVE, str(d.graph.round))


def _graph_failure(d: Draft) -> Failure | None:
    """Name the nodes that ended badly and that no dependant's join tolerated; a node that failed itself comes first."""
    body = [d.node(key) for key in d.topology.body]
    bad = (NodeState.FAILED, NodeState.UNREACHABLE, NodeState.CANCELLED)
    rows = [row for row in body if row.state in bad and not _is_tolerated(d, row.key)]
    if not rows:
        return None
    first = min(rows, key=lambda row: (bad.index(row.state), d.topology.index[row.key]))
    why = f": {first.failure.message}" if first.failure else "."
    return Failure(
        failure_class=first.failure.failure_class if first.failure else FailureClass.CHECK_FAILED,
        code="node_failed",
        message=f"Node {first.key} ended {first.state}{why}",
        facts={"nodes": [row.key for row in rows], "code": first.failure.code if first.failure else None},
    )


def _is_tolerated(d: Draft, key: str) -> bool:
    others = [other for other in d.topology.dependants[key] if other not in d.topology.finals]
    return any(joins.tolerates(d.spec(other).join, d.node(other)) for other in others)
