"""What the simulation is made of, and the rules that hold after every step of it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sandbox_supervisor.protocol.states import GraphState
from tasks_app.kernel import SKEW_GUARD
from tasks_app.models import Task, TaskContact
from tasks_app.services.moves import Moves
from tasks_app.states import TERMINAL, FailureCode, Health, Presence, SecretState, Status

START = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Box:
    """The sandbox, and the supervisor in it."""

    instance: str
    alive: bool = True
    ready: bool = False
    secret: bool = True
    partitioned: bool = False
    graph: GraphState = GraphState.RUNNING
    round: int = 1
    boot: int = 1
    beat: int = 0
    gate: int = 0  # the round for which it was told to run
    worked: set[int] = field(default_factory=set)  # rounds in which it scheduled something


@dataclass
class Pending:
    """A verdict that a worker has made and not written yet."""

    task: Task
    contact: TaskContact
    moves: Moves
    now: datetime


def is_stale(life: Any, pending: Pending) -> bool:
    """Say whether a verdict may no longer be written."""
    moved = life.task.rev != pending.task.rev
    heard = bool(pending.moves.contact) and life.contact.last_contact_at != pending.contact.last_contact_at
    return moved or heard or (life.safe_mode and pending.moves.task.get("presence") == Presence.RECLAIMING)


def check_the_word(life: Any, before: Task) -> None:
    """A status has just been written: was it allowed to be?"""
    task = life.task
    if before.status in TERMINAL:
        assert task.status == Status.RUNNING, "a terminal word changed"
        assert task.round > before.round, "reopened without a new round"
    if task.failure_code == FailureCode.CONNECTION_LOST and task.status == Status.FAILED:
        silent = life.now - max(life.contact.last_contact_at or START, life.unbroken_since)
        assert silent > task.connection_grace - timedelta(seconds=1), f"failed by grace after {silent}"
    if task.failure_code == FailureCode.SANDBOX_LOST and task.status == Status.FAILED:
        assert life.box is None or not life.box.alive or life.box.instance != task.instance, "lost, yet it is there"


def check(life: Any) -> None:
    """Hold the life to the invariants, as it is now."""
    task = life.task
    assert life.created <= 1, "a second sandbox was created"
    if task.first_terminal_at is not None:
        assert task.retain_until == task.first_terminal_at + task.max_retention
        life.deadline = life.deadline or task.retain_until
        assert task.retain_until == life.deadline, "the deadline moved"
    for reason, at in life.destroyed:
        by_person = task.delete_requested_at is not None and task.delete_requested_at <= at
        by_time = life.deadline is not None and at > life.deadline + SKEW_GUARD
        assert by_person or by_time, f"destroyed at {at} for {reason}"
    assert life.released == (0 if task.quota_held else 1), "quota released twice, or not counted"
    if life.box is not None:
        assert all(round_ <= task.round for round_ in life.box.worked), "work before the control plane said running"
    if task.presence in {Presence.RECLAIMING, Presence.RECLAIMED}:
        assert task.status in TERMINAL


def at_rest(life: Any) -> str:
    """Say why the task may stay as it is; empty when it is stuck."""
    task = life.task
    if task.status in TERMINAL:
        secret = task.secret != SecretState.PRESENT and not (life.box is not None and life.box.secret)
        capacity = not task.quota_held or task.presence == Presence.PRESENT
        gone = task.delete_requested_at is None or task.presence == Presence.RECLAIMED
        return "terminal" if secret and capacity and gone else ""
    if task.status == Status.RUNNING and task.health == Health.REACHABLE and life.reachable():
        return "observed running"
    return ""
