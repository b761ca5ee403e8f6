"""Which nodes may have their next attempt, in which order, and the attempt's beginning."""

from sandbox_supervisor.graph import clocks
from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.facts import Dispatched
from sandbox_supervisor.graph.moves import end_node, move_attempt, move_node
from sandbox_supervisor.graph.rows import AttemptId, AttemptRow, GraphRow, State
from sandbox_supervisor.graph.topology import Topology, topology
from sandbox_supervisor.protocol.flow import Flow, Node, NodeKind
from sandbox_supervisor.protocol.messages import CancelMode, Failure, OutcomeCode
from sandbox_supervisor.protocol.spec import DriverEntry, Limits
from sandbox_supervisor.protocol.states import AttemptState, FailureClass, GraphState, NodeState


def ready(flow: Flow, state: State, limits: Limits, drivers: dict[str, DriverEntry]) -> list[str]:
    """List the nodes to dispatch now, longest way to an end first, then definition order.

    Every attempt but an approval's holds one of ``max_parallel_attempts``. A driver's memory reserve is held against
    ``limits.memory``; the first agent that does not fit holds back those behind it, and one that would not fit alone
    runs alone. Pause, gate, cancel and back-offs give an empty (or shorter) list.
    """
    shape = topology(flow)
    keys = [key for key, row in state.nodes.items() if row.state is NodeState.READY and _may(state, shape, key)]
    live = [shape.nodes[row.key] for row in state.nodes.values() if row.active and _holds_slot(shape.nodes[row.key])]
    room = _Room(limits, drivers, live)
    return [key for key in sorted(keys, key=lambda key: _priority(shape, key)) if room.admits(shape.nodes[key])]


def _priority(shape: Topology, key: str) -> tuple[int, int]:
    return (-shape.length[key], shape.index[key])


def _may(state: State, shape: Topology, key: str) -> bool:
    return f"retry:{key}" not in state.timers and _is_open(state.graph, key in shape.finals)


def _is_open(graph: GraphRow, final: bool) -> bool:
    if graph.gate_round < graph.round or graph.stopped is not None:
        return False
    if graph.state is GraphState.CANCELLING:
        return final and graph.in_finally and graph.cancel_mode != CancelMode.KILL
    return graph.state is GraphState.RUNNING and final == graph.in_finally


def _holds_slot(node: Node) -> bool:
    return node.kind is not NodeKind.APPROVAL


class _Room:
    """What is left of slots and memory while a list is drawn up."""

    def __init__(self, limits: Limits, drivers: dict[str, DriverEntry], live: list[Node]) -> None:
        self._drivers = drivers
        self._slots = limits.max_parallel_attempts - len(live)
        self._memory = limits.memory
        self._held = sum(map(self._reserve, live))
        self._full = False

    def admits(self, node: Node) -> bool:
        """Take the node in if there is room for it."""
        if not _holds_slot(node):
            return True
        reserve = self._reserve(node)
        if self._slots < 1 or (reserve and not self._fits(reserve)):
            return False
        self._slots -= 1
        self._held += reserve
        return True

    def _fits(self, reserve: int) -> bool:
        fits = self._memory is None or not self._held or self._held + reserve <= self._memory
        self._full = self._full or not fits
        return not self._full

    def _reserve(self, node: Node) -> int:
        agent = node.agent or (node.merge.agent if node.merge else None)
        entry = self._drivers.get(agent.driver) if agent else None
        return entry.memory_reserve if entry else 0


def dispatched(d: Draft, fact: Dispatched) -> None:
    """Begin the next attempt of a ready node. Raises Refusal for a node that may not be dispatched now."""
    key = fact.node
    if key not in d.topology.nodes:
        raise Refusal("unknown_node", f"The flow has no node {key}.", {"node": key}, outcome=OutcomeCode.UNKNOWN)
    row = d.node(key)
    if row.state is not NodeState.READY or not _may(d.state, d.topology, key):
        raise Refusal("not_ready", f"Node {key} may not be dispatched now.", {"node": key, "state": row.state})
    if d.graph.attempts >= d.graph.attempts_limit:
        end_node(d, key, NodeState.FAILED, failure=_exhausted(d.graph.attempts_limit))
        return
    attempt = AttemptId(node=key, generation=row.generation, n=row.attempts + 1)
    _begin(d, d.spec(key), attempt)


def _begin(d: Draft, spec: Node, attempt: AttemptId) -> None:
    row = d.node(spec.key)
    agent = spec.agent or (spec.merge.agent if spec.merge else None)
    d.attempts[str(attempt)] = AttemptRow(
        id=attempt, state=AttemptState.QUEUED, driver=agent.driver if agent else None, started_at=d.now.at
    )
    d.set_graph(attempts=d.graph.attempts + 1)
    d.set_node(spec.key, attempts=attempt.n, active=str(attempt), started_at=row.started_at or d.now.at)
    move_node(d, spec.key, NodeState.RUNNING)
    move_attempt(d, str(attempt), AttemptState.PROVISIONING)
    if spec.kind is NodeKind.MERGE:
        clocks.start(d, str(attempt))
        d.want(EffectKind.MERGE, str(attempt))
    else:
        d.want(EffectKind.PREPARE, str(attempt))


def _exhausted(limit: int) -> Failure:
    message = f"The task has used up its {limit} attempts."
    return Failure(failure_class=FailureClass.BUDGET, code="attempts_exhausted", message=message)
