"""What the base of a node's next attempt is made of."""

from dataclasses import dataclass

from sandbox_supervisor.graph.rows import NodeRow, State
from sandbox_supervisor.graph.topology import Topology, topology
from sandbox_supervisor.protocol.flow import Flow
from sandbox_supervisor.protocol.states import NodeState


@dataclass(frozen=True, slots=True)
class Source:
    """``node`` passed on ``commit``."""

    node: str
    commit: str


def sources(flow: Flow, state: State, key: str) -> tuple[Source, ...]:
    """List what a node's base is merged from, beside the baseline: the attempt that a rework starts from, then the
    result commits of its needs in definition order.

    Only needs that had settled when the join fired count. A skipped need stands for its own needs; one that ended badly
    for nothing. Each commit occurs once.
    """
    found: dict[str, str] = {}
    start = _rework_start(state, state.nodes[key])
    if start is not None:
        found[start] = key
    for source in _from_needs(topology(flow), state, key):
        found.setdefault(source.commit, source.node)
    return tuple(Source(node, commit) for commit, node in found.items())


def _rework_start(state: State, row: NodeRow) -> str | None:
    last = row.feedback[-1] if row.feedback else None
    if last is None or last.generation != row.generation or last.from_attempt is None:
        return None
    attempt = state.attempts[last.from_attempt]
    return attempt.result_commit or attempt.wip_commit


def _from_needs(shape: Topology, state: State, key: str) -> list[Source]:
    found: list[Source] = []
    seen: set[str] = set()
    todo = _needs(shape, state.nodes[key])
    while todo:
        row = state.nodes[todo.pop(0)]
        if row.key in seen:
            continue
        seen.add(row.key)
        if row.state in (NodeState.SUCCEEDED, NodeState.STALE, NodeState.SKIPPED) and row.result_commit:
            found.append(Source(row.key, row.result_commit))
        elif row.state is NodeState.SKIPPED:
            todo = _needs(shape, row) + todo
    return found


def _needs(shape: Topology, row: NodeRow) -> list[str]:
    needs = [need for need in shape.nodes[row.key].needs if need in row.consumed]
    return sorted(needs, key=shape.index.__getitem__)
