"""What a verdict says: moves to commit, what to look at next, and notes for the history."""

from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sandbox_providers.contract import Endpoint
from tasks_app.states import FailureCode, Health, Presence, RemovalReason, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a task failed. ``message`` says what happened and how to go on; ``facts`` are for programs."""

    code: FailureCode
    stage: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """How often in a row the provider found nothing, and since when; zero reads: none."""

    since: datetime | None = None
    reads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A fact for the history that changes nothing. It is told once per ``key``."""

    kind: str
    key: str
    data: dict[str, Any] = field(default_factory=dict)


class Want(StrEnum):
    PROBE = "probe"  # ask the supervisor directly and decide again with the answer
    EPOCHS = "epochs"  # compare the deployment's epochs and decide again


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """None and empty: stays as it is."""

    status: Status | None = None
    failure: Failure | None = None
    reopened: bool = False
    round: int | None = None
    presence: Presence | None = None
    suspicion: Suspicion | None = None
    instance: str | None = None
    endpoint: Endpoint | None = None
    trouble: str | None = None
    health: Health | None = None
    unreachable_since: datetime | None = None  # together with an unreachable ``health``
    contact_at: datetime | None = None  # a probe that was answered counts as a contact
    removal: RemovalReason | None = None
    look_again_at: datetime | None = None
    notes: tuple[Note, ...] = ()
    wants: frozenset[Want] = frozenset()

    def __bool__(self) -> bool:
        """Say whether there is anything to write."""
        return any(getattr(self, name) not in _NOTHING for name in _WRITTEN)

    def and_then(self, other: "Decision") -> "Decision":
        """Join two verdicts; where both speak the first one holds. A failure belongs to its status."""
        joined = {name: _first(getattr(self, name), getattr(other, name)) for name in _SINGLE}
        speaker = self if self.status is not None else other
        joined.update(status=speaker.status, failure=speaker.failure, reopened=speaker.reopened)
        return Decision(notes=self.notes + other.notes, wants=self.wants | other.wants, **joined)


def _first(mine: Any, theirs: Any) -> Any:
    return theirs if mine is None else mine


_NOTHING: tuple[Any, ...] = (None, False, ())
_JOINED = ("status", "failure", "reopened", "notes", "wants")
_SINGLE = tuple(entry.name for entry in fields(Decision) if entry.name not in _JOINED)
_WRITTEN = tuple(entry.name for entry in fields(Decision) if entry.name != "wants")

NOTHING = Decision()


def failed(code: FailureCode, stage: str, message: str, **facts: Any) -> Decision:
    """Give the verdict *failed* with its reason."""
    return Decision(status=Status.FAILED, failure=Failure(code=code, stage=stage, message=message, facts=facts))
