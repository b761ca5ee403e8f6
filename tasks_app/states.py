"""The words for a task's life and the moves between them. Only ``services/lifecycle.py`` makes a move."""

from enum import StrEnum


class Status(StrEnum):
    PENDING = "pending"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Presence(StrEnum):
    """What became of the sandbox."""

    NONE = "none"
    CREATING = "creating"  # the intent is committed; whether it exists is not known yet
    PRESENT = "present"
    LOST = "lost"
    TERMINATED = "terminated"
    RECLAIMING = "reclaiming"
    RECLAIMED = "reclaimed"


class Health(StrEnum):
    """Whether the supervisor is heard. Never ends a task by itself."""

    UNKNOWN = "unknown"
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"


class SecretState(StrEnum):
    NONE = "none"
    PRESENT = "present"
    WITHDRAWN = "withdrawn"


class FailureCode(StrEnum):
    CAPABILITY_GAP = "capability_gap"
    CAPACITY = "capacity"
    INVALID_SPEC = "invalid_spec"
    MATERIALISATION_FAILED = "materialisation_failed"
    START_DEADLINE = "start_deadline"
    NODE_FAILED = "node_failed"
    DELIVERY_FAILED = "delivery_failed"
    SANDBOX_LOST = "sandbox_lost"
    SANDBOX_FAILED = "sandbox_failed"
    CONTAINER_RESTARTED = "container_restarted"
    CONNECTION_LOST = "connection_lost"
    CREDENTIAL_REVOKED = "credential_revoked"
    STORAGE_FAILED = "storage_failed"
    STORAGE_CORRUPT = "storage_corrupt"
    RETENTION_ENDED = "retention_ended"


class RemovalReason(StrEnum):
    """Why a sandbox may be removed. There is no third reason, and no default."""

    PERSON_DELETED = "person_deleted"
    DEADLINE_PASSED = "deadline_passed"


LIVE = frozenset({Status.PENDING, Status.PROVISIONING, Status.RUNNING})
TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
STANDING = frozenset({Presence.CREATING, Presence.PRESENT})
"""The sandbox exists or may exist: it holds capacity, and is observed."""
GONE = frozenset({Presence.LOST, Presence.TERMINATED, Presence.RECLAIMING, Presence.RECLAIMED})
"""The sandbox will never be heard again."""

STATUS_MOVES: dict[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.PROVISIONING, Status.FAILED, Status.CANCELLED}),
    Status.PROVISIONING: frozenset({Status.RUNNING, Status.FAILED, Status.CANCELLED}),
    Status.RUNNING: TERMINAL,
    Status.COMPLETED: frozenset({Status.RUNNING}),
    Status.FAILED: frozenset({Status.RUNNING}),
    Status.CANCELLED: frozenset({Status.RUNNING}),
}

FAILURES: dict[Status, frozenset[FailureCode]] = {
    Status.PENDING: frozenset({FailureCode.CAPABILITY_GAP}),
    Status.PROVISIONING: frozenset(
        {
            FailureCode.CAPACITY,
            FailureCode.INVALID_SPEC,
            FailureCode.MATERIALISATION_FAILED,
            FailureCode.START_DEADLINE,
            FailureCode.SANDBOX_LOST,
            FailureCode.SANDBOX_FAILED,
            FailureCode.CONNECTION_LOST,
            FailureCode.CREDENTIAL_REVOKED,
        }
    ),
    Status.RUNNING: frozenset(
        {
            FailureCode.NODE_FAILED,
            FailureCode.DELIVERY_FAILED,
            FailureCode.SANDBOX_LOST,
            FailureCode.SANDBOX_FAILED,
            FailureCode.CONTAINER_RESTARTED,
            FailureCode.CONNECTION_LOST,
            FailureCode.CREDENTIAL_REVOKED,
            FailureCode.STORAGE_FAILED,
            FailureCode.STORAGE_CORRUPT,
            FailureCode.RETENTION_ENDED,
        }
    ),
}
"""With which words a task may fail, by the status it fails from."""

PRESENCE_MOVES: dict[Presence, frozenset[Presence]] = {
    Presence.NONE: frozenset({Presence.CREATING, Presence.RECLAIMING}),
    Presence.CREATING: frozenset({Presence.PRESENT, Presence.LOST, Presence.RECLAIMING}),
    Presence.PRESENT: frozenset({Presence.LOST, Presence.TERMINATED, Presence.RECLAIMING}),
    Presence.LOST: frozenset({Presence.RECLAIMING}),
    Presence.TERMINATED: frozenset({Presence.RECLAIMING}),
    Presence.RECLAIMING: frozenset({Presence.RECLAIMED}),
    Presence.RECLAIMED: frozenset(),
}

SECRET_MOVES: dict[SecretState, frozenset[SecretState]] = {
    SecretState.NONE: frozenset({SecretState.PRESENT}),
    SecretState.PRESENT: frozenset({SecretState.WITHDRAWN}),
    SecretState.WITHDRAWN: frozenset(),
}
