"""Show rows as the values that leave the sandbox."""

from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.graph.rows import AttemptRow, NodeRow, RequestRow, State
from sandbox_supervisor.protocol.flow import Node, NodeKind
from sandbox_supervisor.protocol.messages import AttemptView, DeliveryProof, NodeView, RequestView, Snapshot
from sandbox_supervisor.protocol.states import NODE_LETTERS, RequestState

_GAUGES = frozenset({"context_used", "context_size"})


def snapshot(engine: Engine, state: State, seq: int) -> Snapshot:
    """Give the whole projection as it stands at ``seq``."""
    flow = engine.spec.flow
    final = {node.key for node in flow.finally_}
    attempts: dict[str, list[AttemptRow]] = {node.key: [] for node in flow.all_nodes()}
    for row in state.attempts.values():
        attempts[row.id.node].append(row)
    for rows in attempts.values():
        rows.sort(key=lambda row: (row.id.generation, row.id.n))
    nodes = [
        _node(node, state.nodes[node.key], attempts[node.key], in_finally=node.key in final)
        for node in flow.all_nodes()
        if node.key in state.nodes
    ]
    return Snapshot(
        epoch=engine.log.epoch,
        seq=seq,
        graph=state.graph.state,
        round=state.graph.round,
        boot=engine.log.boot,
        nodes=tuple(nodes),
        attempts=tuple(_attempt(row) for rows in attempts.values() for row in rows),
        requests=tuple(_request(row) for row in state.requests.values()),
        max_parallel=state.graph.max_parallel,
        rework_rounds=state.graph.rework_rounds,
        first_node_at=state.graph.first_node_at,
        failure=state.graph.failure,
        usage=usage(state),
    )


def usage(state: State) -> dict[str, float]:
    """Add up what all attempts used; how full a context is does not add up."""
    total: dict[str, float] = {}
    for row in state.attempts.values():
        for name, value in row.usage.items():
            if name in _GAUGES:
                continue
            total[name] = total.get(name, 0.0) + value
    return total


def bar(engine: Engine, state: State) -> str:
    """Give one letter per node, in definition order."""
    rows = (state.nodes.get(node.key, NodeRow(key=node.key)) for node in engine.spec.flow.all_nodes())
    return "".join(NODE_LETTERS[row.state] for row in rows)


def attention(state: State) -> int:
    """Count what waits for a person."""
    return sum(row.state is RequestState.OPEN for row in state.requests.values())


def delivery_proof(engine: Engine, state: State) -> DeliveryProof | None:
    """Give the last delivery node's outcome, None for a flow without one."""
    keys = [node.key for node in engine.spec.flow.all_nodes() if node.kind is NodeKind.DELIVERY]
    row = state.nodes.get(keys[-1]) if keys else None
    if row is None:
        return None
    result = row.result if isinstance(row.result, dict) else {}
    return DeliveryProof(
        node=row.key,
        generation=row.generation,
        state=row.state,
        commit=result.get("commit"),
        nothing=result.get("state") == "nothing_to_deliver",
    )


def _node(node: Node, row: NodeRow, attempts: list[AttemptRow], *, in_finally: bool) -> NodeView:
    return NodeView(
        key=node.key,
        kind=node.kind,
        state=row.state,
        generation=row.generation,
        title=node.title,
        in_finally=in_finally,
        attempts=tuple(str(attempt.id) for attempt in attempts),
        winner=row.winner,
        outcome=row.outcome,
        result=row.result,
        result_commit=row.result_commit,
        failure=row.failure,
        rounds=row.rounds,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _attempt(row: AttemptRow) -> AttemptView:
    return AttemptView(
        id=str(row.id),
        node=row.id.node,
        generation=row.id.generation,
        n=row.id.n,
        state=row.state,
        driver=row.driver,
        started_at=row.started_at,
        ended_at=row.ended_at,
        base_commit=row.base_commit,
        result_commit=row.result_commit,
        result=row.result,
        failure=row.failure,
        usage=row.usage,
        artefacts=row.artefacts,
        first_seq=row.first_seq,
    )


def _request(row: RequestRow) -> RequestView:
    return RequestView(
        id=row.id,
        kind=row.kind,
        state=row.state,
        node=row.node,
        attempt=row.attempt,
        title=row.title,
        body=row.body,
        schema=row.schema,
        options=row.options,
        opened_at=row.opened_at,
        expires_at=row.expires_at,
        answer=row.answer,
        actor=row.actor,
        answered_at=row.answered_at,
    )
