"""Is the database that of this moment? Judged from the epoch that it holds and the one kept beside the sandboxes."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """How far a deployment has come. ``history`` is new at the first start and after every confirmation by a person."""

    history: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """Both, read at one moment. None: there is none; ``trouble`` not empty: the kept one cannot be read, and why."""

    database: Epoch | None = None
    kept: Epoch | None = None
    trouble: str = ""


class Standing(StrEnum):
    """What the two say of each other."""

    BEGINS = "begins"  # a first start, or the first one with epochs
    AGREES = "agrees"
    DATABASE_BEHIND = "database_behind"
    KEPT_BEHIND = "kept_behind"
    OTHER_HISTORY = "other_history"
    MISSING = "missing"
    UNREADABLE = "unreadable"


SOUND = frozenset({Standing.BEGINS, Standing.AGREES})
"""Only with one of these may be done what cannot be undone."""


def judge_epochs(epochs: Epochs) -> Standing:
    """Say what the epochs mean. A step is committed in the database first, so that one ahead of the kept one is sound.

    Number 0 was never kept: without a file it is a first start that was cut.
    """
    database, kept = epochs.database, epochs.kept
    if epochs.trouble:
        return Standing.UNREADABLE
    if kept is None:
        return Standing.MISSING if database is not None and database.number > 0 else Standing.BEGINS
    if database is None or database.history != kept.history:
        return Standing.OTHER_HISTORY
    if database.number < kept.number:
        return Standing.DATABASE_BEHIND
    return Standing.KEPT_BEHIND if database.number > kept.number + 1 else Standing.AGREES
