"""Turn a verdict into columns and history. Pure: the row is read, nothing is written."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from tasks_app.errors import IllegalMove
from tasks_app.kernel import Decision, Failure
from tasks_app.models import Task
from tasks_app.states import (
    FAILURES,
    PRESENCE_MOVES,
    STATUS_MOVES,
    TERMINAL,
    Health,
    Presence,
    Status,
)

ENDED_PRESENCE = frozenset({Presence.LOST, Presence.TERMINATED, Presence.RECLAIMED})


@dataclass(frozen=True, slots=True)
class Fact:
    """One entry for the history; ``key`` not empty: told once."""

    kind: str
    data: dict[str, Any] = field(default_factory=dict)
    key: str = ""


@dataclass(slots=True)
class Moves:
    """Columns of the task and of its contact to write, and the facts to tell, in order."""

    task: dict[str, Any] = field(default_factory=dict)
    contact: dict[str, Any] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)


def moves_of(task: Task, decision: Decision, now: datetime) -> Moves:
    """Give what ``decision`` writes. Raises IllegalMove for a transition that the tables do not know."""
    moves = Moves()
    _status(task, decision, now, moves)
    _presence(task, decision, now, moves)
    _health(task, decision, moves)
    _details(decision, moves)
    moves.facts += [Fact(kind=note.kind, data=note.data, key=note.key) for note in decision.notes]
    return moves


def _status(task: Task, decision: Decision, now: datetime, moves: Moves) -> None:
    if decision.round is not None:
        moves.task["round"] = decision.round
    if decision.status is None:
        return
    before, after = Status(task.status), decision.status
    if after not in STATUS_MOVES[before]:
        raise IllegalMove(f"{task.pk}: {before} → {after}")
    moves.task["status"] = after
    if after is Status.FAILED:
        _failure(before, decision.failure, moves)
    if after is Status.RUNNING:
        moves.task["running_at"] = task.running_at or now
    if decision.reopened:
        moves.task.update(failure_code="", failure={}, cancel_requested_at=None)
    if after in TERMINAL:
        first = task.first_terminal_at or now
        moves.task.update(first_terminal_at=first, retain_until=task.retain_until or first + task.max_retention)
        moves.task["look_again_at"] = None
    moves.facts.append(_told(after, decision))


def _failure(before: Status, failure: Failure | None, moves: Moves) -> None:
    if failure is None or failure.code not in FAILURES[before]:
        raise IllegalMove(f"{before} → failed with {failure.code if failure else 'no reason'}")
    moves.task["failure_code"] = failure.code
    moves.task["failure"] = {"stage": failure.stage, "message": failure.message, "facts": failure.facts}


def _told(after: Status, decision: Decision) -> Fact:
    data: dict[str, Any] = {"round": decision.round} if decision.round is not None else {}
    if decision.failure is not None:
        failure = decision.failure
        data |= {"code": failure.code, "stage": failure.stage, "message": failure.message}
    if decision.reopened:
        return Fact("task.reopened", data)
    return Fact("task.started" if after is Status.RUNNING else f"task.{after}", data)


def move_presence(task: Task, after: Presence, moves: Moves) -> None:
    """Write a move of the presence. Raises IllegalMove."""
    if after not in PRESENCE_MOVES[Presence(task.presence)]:
        raise IllegalMove(f"{task.pk}: sandbox {task.presence} → {after}")
    moves.task["presence"] = after
    moves.facts.append(Fact(f"sandbox.{after}"))


def _presence(task: Task, decision: Decision, now: datetime, moves: Moves) -> None:
    if decision.presence is not None:
        move_presence(task, decision.presence, moves)
        if decision.presence is Presence.LOST:
            moves.task["lost_at"] = now
        if decision.presence is Presence.PRESENT:
            moves.task.update(provisioned_at=now, attempts=0, look_again_at=None)
    if decision.removal is not None:
        move_presence(task, Presence.RECLAIMING, moves)
        moves.task.update(removal_reason=decision.removal, attempts=0, look_again_at=None)


def _health(task: Task, decision: Decision, moves: Moves) -> None:
    if decision.contact_at is not None:
        moves.contact["last_contact_at"] = decision.contact_at
    if decision.health is None:
        return
    moves.task["health"] = decision.health
    moves.contact["unreachable_since"] = decision.unreachable_since
    if decision.health is task_health(task):
        return
    if decision.health is Health.UNREACHABLE:
        moves.facts.append(Fact("task.unreachable"))
    elif task_health(task) is Health.UNREACHABLE:
        moves.facts.append(Fact("task.recovered"))


def task_health(task: Task) -> Health:
    return Health(task.health)


def _details(decision: Decision, moves: Moves) -> None:
    if decision.suspicion is not None:
        moves.task.update(absent_since=decision.suspicion.since, absent_reads=decision.suspicion.reads)
    if decision.instance is not None:
        moves.task["instance"] = decision.instance
    if decision.endpoint is not None:
        moves.task["endpoint"] = asdict(decision.endpoint)
    if decision.trouble is not None:
        moves.task["trouble"] = decision.trouble
    if decision.look_again_at is not None:
        moves.task["look_again_at"] = decision.look_again_at


def frees_capacity(task: Task, moves: Moves) -> bool:
    """Say whether the sandbox, or the hope for one, ends with these moves while the task still holds its quota."""
    if not task.quota_held:
        return False
    status, presence = moves.task.get("status", task.status), moves.task.get("presence", task.presence)
    return presence in ENDED_PRESENCE or (presence == Presence.NONE and status in TERMINAL)
