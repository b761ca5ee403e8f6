"""The rows that the log keeps: what is known about graph, nodes, attempts, requests, timers.

An instant is seconds of ``CLOCK_BOOTTIME`` (float) of the boot in which it was written; ``at`` strings are RFC 3339
labels.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.protocol.messages import CommandOutcome, Failure
from sandbox_supervisor.protocol.states import (
    AttemptState,
    GraphState,
    NodeState,
    RequestKind,
    RequestState,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptId:
    """``str()`` gives ``<node>.<generation>.<n>``: in paths, refs, requests and the API."""

    node: str
    generation: int
    n: int

    def __str__(self) -> str:
        return f"{self.node}.{self.generation}.{self.n}"

    @classmethod
    def parse(cls, text: str) -> "AttemptId":
        """Read ``str()`` back. Raises ValueError."""
        node, generation, n = text.rsplit(".", 2)
        return cls(node=node, generation=int(generation), n=int(n))


class StalePlan(StrEnum):
    """What is to become of a stale node once its inputs have settled."""

    RUN = "run"  # run again, unless the inputs turn out unchanged
    KEEP = "keep"  # keep its old result either way; not decided yet whether it is still up to date
    KEPT = "kept"  # decided: inputs differ, the old result stays in use


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRow:
    task: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)  # frozen
    attempts_limit: int = 10_000  # in all rounds together
    attempts: int = 0  # made so far
    state: GraphState = GraphState.RUNNING
    round: int = 1
    gate_round: int = 0  # the highest round that the control plane has said ``running`` for
    stopped: str | None = None  # reason, once the control plane has said ``ended`` for this round
    cancel_mode: str | None = None
    in_finally: bool = False  # the body has ended with ``outcome``; the ``finally`` nodes run
    outcome: GraphState | None = None
    failure: Failure | None = None
    max_parallel: int = 0
    rework_rounds: int = 0
    first_node_at: str | None = None
    rev: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a rework adds to the prompt, and the attempt it starts from."""

    by: str  # node key or actor
    text: str
    from_attempt: str | None
    generation: int  # the generation that this feedback created


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    key: str
    state: NodeState = NodeState.WAITING
    generation: int = 1
    attempts: int = 0  # made in this generation
    retries: int = 0  # used of retry.limit in this generation
    infra_retries: int = 0  # used of retry.infra_limit in this generation
    rounds: int = 0  # rework rounds this node has asked for
    active: str | None = None  # the attempt that is not terminal
    winner: str | None = None  # the succeeded attempt whose results count
    base_commit: str | None = None
    result_commit: str | None = None  # what dependants get; the base for a node that passes through
    output_digest: str | None = None  # of result commit tree, artefacts and result
    result: Any = None
    fired: bool = False  # the join fired in this generation
    stale: StalePlan | None = None  # set exactly while the state is stale
    superseded: bool = False  # a rework replaced its inputs while it ran: it waits anew once its attempt has ended
    outcome: str | None = None  # succeeded | failed | skipped | cancelled | unreachable, for ``when``
    failure: Failure | None = None
    consumed: dict[str, str] = field(default_factory=dict)  # settled need → its output digest when the join fired
    feedback: tuple[Feedback, ...] = ()
    node_seconds: float = 0.0  # consumed of timeout.node in this generation; waiting for input counts
    clock_since: float | None = None  # instant at which the node's clock was last started, None while stopped
    started_at: str | None = None
    ended_at: str | None = None
    rev: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    id: AttemptId
    state: AttemptState
    driver: str | None = None
    identity: Identity | None = None
    base_commit: str | None = None
    result_commit: str | None = None
    wip_commit: str | None = None
    result: Any = None
    failure: Failure | None = None
    usage: dict[str, float] = field(default_factory=dict)
    artefacts: tuple[dict[str, Any], ...] = ()  # {name, path, digest, size, media_type}
    active_seconds: float = 0.0  # consumed of timeout.attempt; waiting for input does not count
    clock_since: float | None = None  # instant at which the running clock was last started, None while stopped
    cancel_reason: str | None = None  # set when the wish to stop was committed
    started_at: str | None = None
    ended_at: str | None = None
    first_seq: int | None = None
    rev: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    id: str
    kind: RequestKind
    node: str
    attempt: str
    state: RequestState
    title: str
    body: str = ""
    schema: dict[str, Any] | None = None
    options: tuple[dict[str, str], ...] = ()
    fingerprint: str = ""
    opened_at: str = ""
    expires_at: str | None = None
    answer: Any = None
    actor: str | None = None
    answered_at: str | None = None
    rev: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerRow:
    """``id`` is ``<what>:<subject>``; ``remaining`` is seconds at ``since`` (an instant), so that a restart goes on."""

    id: str
    what: str  # retry | attempt | node | approval
    subject: str  # node key or attempt id
    remaining: float
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A side effect wanted. ``id`` is deterministic (``<kind>:<subject>``), so that committing it twice is once."""

    id: str
    kind: str  # one of effects.EffectKind
    subject: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    id: str
    digest: str  # of verb and arguments: the same id with another body is refused
    outcome: CommandOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event before the log has numbered it."""

    kind: str
    node: str | None = None
    generation: int | None = None
    attempt: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything the graph kernel reads. ``intents`` are the open ones."""

    graph: GraphRow
    nodes: dict[str, NodeRow]
    attempts: dict[str, AttemptRow]
    requests: dict[str, RequestRow]
    timers: dict[str, TimerRow]
    intents: dict[str, Intent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One transaction: rows by compare-and-set on ``rev`` (the row carries the new rev), events, intents, timers."""

    graph: GraphRow | None = None
    nodes: tuple[NodeRow, ...] = ()
    attempts: tuple[AttemptRow, ...] = ()
    requests: tuple[RequestRow, ...] = ()
    timers_set: tuple[TimerRow, ...] = ()
    timers_cleared: tuple[str, ...] = ()
    intents: tuple[Intent, ...] = ()
    intents_done: tuple[str, ...] = ()
    command: CommandRow | None = None
    events: tuple[NewEvent, ...] = ()
