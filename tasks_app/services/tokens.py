"""The tokens of a sandbox: derived from the task's nonce and the pepper ring, so that none of them is stored.

``cst_<task id>.<key id>.<hex>`` is for calls of the sandbox to us; the dial token is for our calls to its supervisor.
What a task token may do follows the task's state: a zombie holds a token that is good for nothing.
"""

import hmac
from enum import StrEnum
from hashlib import sha256

from django.conf import settings

from tasks_app.errors import TokenEnded, TokenRefused
from tasks_app.models import Task
from tasks_app.states import LIVE, STANDING, Presence, Status

PREFIX = "cst_"
MAX_LENGTH = 200


class Audience(StrEnum):
    SUPERVISOR = "supervisor"
    MATERIALISE = "materialise"
    DIAL = "dial"


class Scope(StrEnum):
    """What a call of a sandbox is about."""

    HEARTBEAT = "heartbeat"
    DOWNLOAD = "download"  # specification, skills, resources
    DELIVER = "deliver"
    ARCHIVE = "archive"  # artefacts, snapshot, capsule


def pepper_in_use() -> str:
    """Give the key id that signs now; it is frozen on each new task."""
    return str(settings.TOKEN_PEPPER_RING[0][0])


def task_token(task: Task, audience: Audience = Audience.SUPERVISOR) -> str:
    return f"{PREFIX}{task.pk}.{task.token_key_id}.{_mac(task, audience)}"


def dial_token(task: Task) -> str:
    """Give the bearer that the task's supervisor expects from us."""
    return _mac(task, Audience.DIAL)


def verify_task_token(bearer: str, scope: Scope) -> Task:
    """Give the task that ``bearer`` speaks for. Raises TokenRefused, or TokenEnded when its state forbids ``scope``."""
    task_id, key_id, mac = _parts(bearer)
    task = Task.objects.select_related("contact").filter(pk=task_id, token_key_id=key_id).first()
    if task is None:
        raise TokenRefused("This is no task token of ours.")
    audiences = [Audience.SUPERVISOR, *([Audience.MATERIALISE] if scope is Scope.DOWNLOAD else [])]
    matches = [hmac.compare_digest(mac, _mac(task, audience)) for audience in audiences]
    if not any(matches):
        raise TokenRefused("This is no task token of ours.")
    if not allows(Status(task.status), Presence(task.presence), scope):
        raise TokenEnded(f"The task is {task.status}, its sandbox {task.presence}: no {scope} any more.", scope=scope)
    return task


def allows(status: Status, presence: Presence, scope: Scope) -> bool:
    """Say whether a token may be used for ``scope`` in this state of its task."""
    if presence not in STANDING:
        return False
    match scope:
        case Scope.DOWNLOAD:
            return status in LIVE
        case Scope.DELIVER:
            return status is Status.RUNNING
        case _:
            return True


def _parts(bearer: str) -> tuple[str, str, str]:
    parts = bearer.removeprefix(PREFIX).split(".") if bearer.startswith(PREFIX) and bearer.isascii() else []
    if len(parts) != 3 or len(bearer) > MAX_LENGTH:
        raise TokenRefused("This is no task token of ours.")
    return parts[0], parts[1], parts[2]


def _mac(task: Task, audience: Audience) -> str:
    pepper = next((entry[1] for entry in settings.TOKEN_PEPPER_RING if entry[0] == task.token_key_id), None)
    if pepper is None:
        raise TokenRefused("The key that signed this token is not in the ring any more.")
    return hmac.new(bytes.fromhex(pepper), f"{task.pk}|{task.nonce}|{audience}".encode(), sha256).hexdigest()
