"""What a verdict rests on. Values only: no clock, no database, no provider."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandbox_providers.contract import Endpoint, Observation
from sandbox_supervisor.protocol.messages import Heartbeat
from tasks_app.states import FailureCode, Health, Presence, SecretState, Status

BEAT = timedelta(seconds=10)  # between two heartbeats
SILENCE = 3 * BEAT  # three missed beats make a suspicion
ABSENT_READS = 3
ABSENT_FOR = timedelta(seconds=20)
SKEW_GUARD = timedelta(seconds=120)
SNAPSHOT_PATIENCE = timedelta(seconds=30)  # how long a deletion waits for the final snapshot
REOPEN_MARGIN = timedelta(seconds=60)  # a rerun needs this much time to start


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The last heartbeat that was taken. Within one epoch ``(boot, round, beat)`` orders heartbeats."""

    instance: str
    epoch: str
    boot: int
    round: int
    beat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """The task as its row says, read at one moment. Moments are UTC on the database clock."""

    status: Status
    presence: Presence = Presence.NONE
    health: Health = Health.UNKNOWN
    secret: SecretState = SecretState.NONE
    round: int = 1
    failure: FailureCode | None = None
    specification: str = ""  # digest
    instance: str = ""  # empty until the provider named it
    endpoint: Endpoint | None = None
    trouble: str = ""
    heard: Fence | None = None  # None: its supervisor was never heard
    last_contact_at: datetime | None = None
    unreachable_since: datetime | None = None
    absent_since: datetime | None = None
    absent_reads: int = 0
    provisioning_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    delete_requested_at: datetime | None = None
    first_terminal_at: datetime | None = None
    retain_until: datetime | None = None

    @property
    def end_is_wanted(self) -> bool:
        return self.cancel_requested_at is not None or self.delete_requested_at is not None


class Proof(StrEnum):
    """What the control plane's own rows say about the delivery that the flow asks for."""

    NOT_ASKED = "not_asked"
    HOLDS = "holds"
    NOTHING = "nothing_to_deliver"
    MISSING = "missing"


class Creation(StrEnum):
    """How the last try to create the sandbox ended."""

    CREATED = "created"
    GAP = "gap"  # a capability vanished before the sandbox
    INVALID = "invalid"  # it can never be created like this
    NO_ROOM = "no_room"
    UNKNOWN = "unknown"  # no answer: it may exist


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known at this moment. None and defaults: this caller did not look."""

    report: Heartbeat | None = None
    observation: Observation | None = None
    creation: Creation | None = None
    cause: str = ""  # the provider's own words about ``creation``
    probe: bool | None = None  # whether the supervisor answered when asked directly
    watching_since: datetime | None = None  # since when somebody listened; None: silence is not judged here
    proof: Proof = Proof.NOT_ASKED
    archive_stored: bool = False
    epochs_agree: bool | None = None  # False: the database may have been restored from a backup
    clock_trusted: bool = False  # only the reclaimer judges deadlines, and not after a jump of the database clock


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenLimits:
    grace: timedelta
    start_deadline: timedelta
    rerun_patience: timedelta
    archive_patience: timedelta
