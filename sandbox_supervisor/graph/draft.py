"""One transition in the making: reads fall through to the state, writes gather into one ``Change``."""

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.facts import Now
from sandbox_supervisor.graph.rows import (
    AttemptId,
    AttemptRow,
    Change,
    CommandRow,
    GraphRow,
    Intent,
    NewEvent,
    NodeRow,
    RequestRow,
    State,
    TimerRow,
)
from sandbox_supervisor.graph.topology import Topology
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.flow import Flow, Node
from sandbox_supervisor.protocol.states import ATTEMPT_ENDED, GraphState

Row = TypeVar("Row", NodeRow, AttemptRow, RequestRow)


@dataclass(slots=True)
class Draft:
    """``now`` is the one moment of the transition. ``dirty`` holds the nodes whose joins have to be looked at again."""

    flow: Flow
    topology: Topology
    state: State
    now: Now
    graph_row: GraphRow | None = None
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    attempts: dict[str, AttemptRow] = field(default_factory=dict)
    requests: dict[str, RequestRow] = field(default_factory=dict)
    timers: dict[str, TimerRow | None] = field(default_factory=dict)
    intents: dict[str, Intent] = field(default_factory=dict)
    intents_done: dict[str, None] = field(default_factory=dict)
    command: CommandRow | None = None
    events: list[NewEvent] = field(default_factory=list)
    dirty: set[str] = field(default_factory=set)

    # --- reading ---

    @property
    def graph(self) -> GraphRow:
        return self.graph_row or self.state.graph

    def spec(self, key: str) -> Node:
        return self.topology.nodes[key]

    def node(self, key: str) -> NodeRow:
        return self.nodes.get(key) or self.state.nodes[key]

    def attempt(self, attempt: str) -> AttemptRow:
        return self.attempts.get(attempt) or self.state.attempts[attempt]

    def request(self, request: str) -> RequestRow | None:
        return self.requests.get(request) or self.state.requests.get(request)

    def timer(self, timer: str) -> TimerRow | None:
        return self.timers[timer] if timer in self.timers else self.state.timers.get(timer)

    def live_attempts(self) -> list[AttemptRow]:
        """The attempts that have not ended, in definition order of their nodes."""
        rows = (self.node(key) for key in self.topology.nodes)
        return [self.attempt(row.active) for row in rows if row.active]

    def requests_of(self, attempt: str) -> list[RequestRow]:
        merged = {**self.state.requests, **self.requests}
        return [row for row in merged.values() if row.attempt == attempt]

    # --- writing ---

    def set_graph(self, **changes: Any) -> None:
        self.graph_row = replace(self.graph, **changes)

    def move_graph(self, state: GraphState, **changes: Any) -> None:
        """Change the graph's state, with its event."""
        self.set_graph(state=state, **changes)
        self.event(EventKind.GRAPH_STATE, {"state": state, "failure": self.graph.failure})

    def set_node(self, key: str, **changes: Any) -> NodeRow:
        row = self.nodes[key] = replace(self.node(key), **changes)
        return row

    def touch(self, key: str) -> None:
        """Have the joins of the node, its dependants and those who asked it for rework looked at again."""
        self.dirty.add(key)
        self.dirty.update(self.topology.dependants[key])
        self.dirty.update(self.topology.askers[key])

    def set_attempt(self, attempt: AttemptId | str, **changes: Any) -> AttemptRow:
        row = self.attempts[str(attempt)] = replace(self.attempt(str(attempt)), **changes)
        return row

    def set_request(self, row: RequestRow) -> None:
        self.requests[row.id] = row

    def set_timer(self, what: str, subject: str, seconds: float) -> None:
        """Start (or start anew) the timer ``<what>:<subject>``."""
        timer = f"{what}:{subject}"
        self.timers[timer] = TimerRow(id=timer, what=what, subject=subject, remaining=seconds, since=self.now.instant)

    def clear_timer(self, what: str, subject: str) -> None:
        timer = f"{what}:{subject}"
        if self.timer(timer) is not None:
            self.timers[timer] = None

    def want(self, kind: EffectKind, subject: str, *, data: dict[str, Any] | None = None, suffix: str = "") -> None:
        """Want a side effect; its id follows from kind and subject (and ``suffix``)."""
        intent = f"{kind}:{subject}{suffix}"
        self.intents[intent] = Intent(id=intent, kind=kind, subject=subject, data=data or {})

    def done(self, intent: str) -> None:
        """The wish is fulfilled or moot. Unknown ids are ignored."""
        if self.intents.pop(intent, None) is None and intent in self.state.intents:
            self.intents_done[intent] = None

    def event(
        self, kind: EventKind, data: dict[str, Any], *, node: str | None = None, attempt: str | None = None
    ) -> None:
        """Add an event; empty values are left out of its data."""
        generation = self.node(node).generation if node else None
        if attempt:
            generation = AttemptId.parse(attempt).generation
        kept = {key: codec.plain(value) for key, value in data.items() if value is not None and value != {}}
        self.events.append(NewEvent(kind=kind, node=node, generation=generation, attempt=attempt, data=kept))

    # --- the end ---

    def change(self) -> Change:
        """Give the whole transition; every changed row carries its next ``rev``."""
        state = self.state
        return Change(
            graph=_next(self.graph_row, state.graph) if self.graph_row else None,
            nodes=_changed(self.nodes, state.nodes),
            attempts=_changed(self.attempts, state.attempts),
            requests=_changed(self.requests, state.requests),
            timers_set=tuple(row for key, row in self.timers.items() if row and row != state.timers.get(key)),
            timers_cleared=tuple(key for key, row in self.timers.items() if row is None and key in state.timers),
            intents=tuple(self.intents.values()),
            intents_done=tuple(self.intents_done),
            command=self.command,
            events=tuple(self.events),
        )


def _next(row: GraphRow, old: GraphRow) -> GraphRow | None:
    return None if row == old else replace(row, rev=old.rev + 1)


def _changed(rows: dict[str, Row], old: dict[str, Row]) -> tuple[Row, ...]:
    return tuple(
        replace(row, rev=old[key].rev + 1 if key in old else 1) for key, row in rows.items() if row != old.get(key)
    )


def is_live(row: AttemptRow) -> bool:
    return row.state not in ATTEMPT_ENDED
