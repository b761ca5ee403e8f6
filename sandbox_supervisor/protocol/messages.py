"""Heartbeats, commands, snapshots and deliveries between control plane and supervisor."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sandbox_supervisor.protocol import PROTOCOL
from sandbox_supervisor.protocol.states import (
    AttemptState,
    FailureClass,
    GraphState,
    NodeState,
    RequestKind,
    RequestState,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt or a node failed. ``message`` says what, where and how to go on; ``facts`` are for programs."""

    failure_class: FailureClass
    code: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)


# --- heartbeat -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    seq: int
    chain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryProof:
    """What the graph can show for its delivery: the last delivery node's outcome, if the flow has one."""

    node: str
    generation: int
    state: NodeState
    commit: str | None = None  # None together with ``nothing``
    nothing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """``(instance, epoch, boot, round, beat)`` orders heartbeats; the control plane ignores what is older."""

    instance: str
    epoch: str
    boot: int
    round: int
    beat: int
    head: Head
    graph: GraphState
    ready: bool  # core services answer, configuration valid, everything materialised
    readiness: dict[str, str] = field(default_factory=dict)  # item → "ok" or what is wrong
    failure: Failure | None = None  # of the graph, when it failed; or of the storage
    delivery: DeliveryProof | None = None
    attention: int = 0
    bar: str = ""  # NODE_LETTERS in definition order
    usage: dict[str, float] = field(default_factory=dict)
    disk_used: int = 0  # bytes: disk blocks of everything in the sandbox's folder, at most about a minute old
    memory_used: int = 0  # bytes, as old: what supervisor, runner and all below it hold resident, each for itself
    fingerprint: str = ""  # sha-256 of the server certificate, hex
    specification: str = ""  # digest of the specification it runs
    protocol: int = PROTOCOL


class Desired(StrEnum):
    """What the control plane wants: hold (not yet running), run, cancel, stop (kill the trees, stay readable)."""

    HOLD = "hold"
    RUN = "run"
    CANCEL = "cancel"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    status: str
    round: int  # the round the control plane's status refers to
    desired: Desired
    reason: str = ""
    interval: float = 10.0
    server_time: str = ""
    deliveries: tuple[str, ...] = ()  # ids of deliveries that have been settled since
    archive_wanted: bool = False  # a final snapshot is wanted (first terminal word, or a person's delete)
    acknowledged: Head | None = None
    protocol: int = PROTOCOL


# --- commands --------------------------------------------------------------------------------------------------------


class CommandVerb(StrEnum):
    RERUN = "rerun"
    REWORK = "rework"
    ANSWER = "answer"
    MESSAGE = "message"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    CANCEL_ATTEMPT = "cancel_attempt"


class CancelMode(StrEnum):
    DRAIN = "drain"
    CANCEL = "cancel"
    KILL = "kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One person's wish. ``id`` is chosen by the client; repeating it returns the first outcome.

    rerun: nodes, run_stale; rework: node, feedback, attempt (to start from; default the winner); answer: request,
    answer; message: attempt, text; cancel: mode; cancel_attempt: attempt.
    """

    id: str
    verb: CommandVerb
    actor: str
    nodes: tuple[str, ...] = ()
    run_stale: bool = False
    node: str | None = None
    feedback: str | None = None
    attempt: str | None = None
    request: str | None = None
    answer: Any = None
    text: str | None = None
    mode: CancelMode = CancelMode.CANCEL


class OutcomeCode(StrEnum):
    DONE = "done"
    REFUSED = "refused"  # the state does not allow it: HTTP 409
    UNKNOWN = "unknown"  # no such node, attempt or request: HTTP 404
    INVALID = "invalid"  # HTTP 422


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    code: OutcomeCode
    seq: int | None = None  # of the event that recorded it; a client waits until its stream has passed it
    reason: str = ""
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


# --- snapshot --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    id: str  # <node>.<generation>.<n>
    node: str
    generation: int
    n: int
    state: AttemptState
    driver: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    base_commit: str | None = None
    result_commit: str | None = None
    result: Any = None
    failure: Failure | None = None
    usage: dict[str, float] = field(default_factory=dict)
    artefacts: tuple[dict[str, Any], ...] = ()
    first_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    key: str
    kind: str
    state: NodeState
    generation: int
    title: str = ""
    in_finally: bool = False
    attempts: tuple[str, ...] = ()
    winner: str | None = None
    outcome: str | None = None
    result: Any = None
    result_commit: str | None = None
    failure: Failure | None = None
    rounds: int = 0  # rework rounds this node has asked for
    started_at: str | None = None
    ended_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    id: str
    kind: RequestKind
    state: RequestState
    node: str
    attempt: str | None
    title: str
    body: str = ""
    schema: dict[str, Any] | None = None  # of a question's answer
    options: tuple[dict[str, str], ...] = ()  # {id, name, kind?}
    opened_at: str = ""
    expires_at: str | None = None
    answer: Any = None
    actor: str | None = None
    answered_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    epoch: str
    seq: int
    graph: GraphState
    round: int
    boot: int
    nodes: tuple[NodeView, ...]
    attempts: tuple[AttemptView, ...]
    requests: tuple[RequestView, ...]
    max_parallel: int = 0  # the most attempts that ever ran at once
    rework_rounds: int = 0
    first_node_at: str | None = None
    failure: Failure | None = None
    usage: dict[str, float] = field(default_factory=dict)
    protocol: int = PROTOCOL


# --- deliveries ------------------------------------------------------------------------------------------------------


class DeliveryState(StrEnum):
    RECEIVED = "received"  # bundle incomplete or not yet checked
    QUEUED = "queued"
    DELIVERED = "delivered"
    NOTHING = "nothing_to_deliver"
    REFUSED = "refused"  # checks failed; no retry
    CONFLICT = "conflict"  # the remote branch moved; a person decides
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRequest:
    """``POST /internal/v1/deliveries``. ``key`` is ``task:node:generation:push`` and makes the call idempotent."""

    key: str
    node: str
    generation: int
    round: int
    base_commit: str
    commit: str  # equal to base_commit: nothing to deliver, no bundle
    bundle_digest: str | None = None  # sha256:<hex>
    bundle_size: int = 0
    title: str = ""
    body: str = ""
    draft: bool = False
    change_request: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAnswer:
    id: str
    state: DeliveryState
    offset: int = 0  # bytes of the bundle that have arrived
    branch: str = ""
    commit: str | None = None
    change_request: dict[str, Any] | None = None
    code: str = ""
    message: str = ""
