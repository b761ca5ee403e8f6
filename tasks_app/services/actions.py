"""What may be done with a task now, by this actor: the one rule behind API, console and command line."""

from datetime import datetime
from enum import StrEnum

from tasks_app.models import Task
from tasks_app.states import LIVE, TERMINAL, Presence, Status
from workspaces_app.access import Actor, Permission, allowed


class Action(StrEnum):
    RENAME = "rename"
    CANCEL = "cancel"
    DELETE = "delete"
    RERUN = "rerun"
    REWORK = "rework"
    ANSWER = "answer"
    MESSAGE = "message"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL_ATTEMPT = "cancel_attempt"


WHILE_RUNNING = (
    Action.RERUN,
    Action.REWORK,
    Action.ANSWER,
    Action.MESSAGE,
    Action.PAUSE,
    Action.RESUME,
    Action.CANCEL_ATTEMPT,
)
AFTER_THE_END = (Action.RERUN, Action.REWORK)


def actions_of(task: Task, actor: Actor, *, now: datetime) -> tuple[Action, ...]:
    """List what ``actor`` may do with the task at ``now``. What the graph itself allows only its supervisor knows."""
    found: list[Action] = []
    deleting = task.delete_requested_at is not None
    if allowed(actor, Permission.STEER_TASK, task.workspace_id):
        found.append(Action.RENAME)
        if task.status in LIVE and task.cancel_requested_at is None and not deleting:
            found.append(Action.CANCEL)
        found += _commands(task, now)
    if not deleting and _may_delete(task, actor):
        found.append(Action.DELETE)
    return tuple(found)


def _commands(task: Task, now: datetime) -> tuple[Action, ...]:
    if task.presence != Presence.PRESENT or task.delete_requested_at is not None:
        return ()
    if task.status == Status.RUNNING:
        return WHILE_RUNNING
    in_window = task.retain_until is not None and now < task.retain_until
    return AFTER_THE_END if task.status in TERMINAL and in_window else ()


def _may_delete(task: Task, actor: Actor) -> bool:
    if task.presence in {Presence.RECLAIMING, Presence.RECLAIMED}:
        return False
    return allowed(actor, Permission.DELETE_TASK, task.workspace_id, creator_id=task.creator_id)
