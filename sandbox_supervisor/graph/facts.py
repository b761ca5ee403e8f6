"""What can happen to a graph. ``kernel.step(flow, state, fact, now)`` turns one fact into one ``Change``."""

from dataclasses import dataclass, field
from typing import Any

from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.graph.rows import AttemptId, NewEvent, RequestRow
from sandbox_supervisor.protocol.messages import Command, Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """``instant`` is CLOCK_BOOTTIME seconds; ``at`` the RFC 3339 label for rows."""

    instant: float
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """A supervisor took over this log. The time since ``alive_until``, the instant of the last commit of the one before
    it (None: there was none), counts against no attempt. ``same_boot`` is False after a reboot: instants start anew."""

    boot: int
    alive_until: float | None = None
    same_boot: bool = True
    data: dict[str, Any] = field(default_factory=dict)  # what else ``supervisor.started`` says


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOpened:
    """The control plane said ``running`` for this round."""

    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateClosed:
    """The control plane said ``ended``: kill every tree, schedule nothing, stay readable."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """The scheduler gives a ready node its next attempt."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The attempt's tree stands at ``base_commit`` (or its base was computed, for a node without a tree)."""

    attempt: AttemptId
    base_commit: str
    question: str | None = None  # of an approval, rendered; None: as the flow has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """The shim reported itself and waits for *go*."""

    attempt: AttemptId
    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Session events of a running attempt; changes no state but ``usage``: totals of the session so far."""

    attempt: AttemptId
    events: tuple[NewEvent, ...]
    usage: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An attempt (or an approval) waits for a person. The row is new and open."""

    request: RequestRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Finishing:
    """The attempt's tree is proven empty and what it left is being stored. Stops its clocks. Optional."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The attempt's tree is proven empty and its result is stored. ``output_digest`` covers everything it passes on."""

    attempt: AttemptId
    result_commit: str
    output_digest: str
    result: Any = None
    artefacts: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The attempt ended without success; its tree is proven empty. Timeouts and cancels are decided by the row's
    ``cancel_reason``, which wins over what the process said."""

    attempt: AttemptId
    failure: Failure
    wip_commit: str | None = None
    retry_after: float | None = None  # seconds, from a rate limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The tree of an attempt that was told to stop is proven empty."""

    attempt: AttemptId
    wip_commit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Supervisor or runner died under the attempt; its tree is proven empty."""

    attempt: AttemptId
    cause: str
    wip_commit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    timer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDone:
    """An intent was carried out; ``events`` record what came of it (an upload, a delivery's progress)."""

    intent: str
    events: tuple[NewEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commanded:
    command: Command


Fact = (
    Restarted
    | GateOpened
    | GateClosed
    | Dispatched
    | Prepared
    | Spawned
    | Progress
    | Asked
    | Finishing
    | Succeeded
    | Failed
    | Ended
    | Interrupted
    | TimerFired
    | EffectDone
    | Commanded
)
