"""Keeps the rows of the daphne under test: one JSON command a line in, one JSON answer a line out."""

# ruff: noqa: E402 - the app registry is loaded before any model is

import importlib
import json
import sys
from typing import Any

import django

django.setup()

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY

from tasks_app import nudges
from tasks_app.models import Task
from tasks_app.services import clock, tokens
from tasks_app.states import STANDING, Presence, Status
from tests.task_rows import make_house, make_task
from workspaces_app.models import Membership, User
from workspaces_app.states import Role

sessions = importlib.import_module(settings.SESSION_ENGINE)
house = make_house("main")
other = make_house("other")


def sign_in(*, workspace: str, role: str) -> dict[str, str]:
    user = (house if workspace == "main" else other).user(Role(role))
    session = sessions.SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    return {"cookie": f"{settings.SESSION_COOKIE_NAME}={session.session_key}", "session": session.session_key}


def sign_out(*, session: str) -> None:
    sessions.SessionStore(session).delete()


def new_task(*, endpoint: dict[str, Any] | None, presence: str) -> dict[str, str]:
    gone = Presence(presence) not in STANDING | {Presence.NONE}
    columns: dict[str, Any] = {"removal_reason": "deadline_passed"} if presence == "reclaiming" else {}
    if presence == "lost":
        columns["lost_at"] = clock.database_now()
    status = Status.COMPLETED if gone else Status.RUNNING
    task = make_task(house, presence=Presence(presence), status=status, endpoint=endpoint, **columns)
    return {"id": task.pk, "token": tokens.dial_token(task)}


def change(*, task: str, **columns: object) -> None:
    Task.objects.filter(pk=task).update(**columns)


def nudge(*, task: str) -> None:
    nudges.task_changed(task, house.workspace.pk)


def leave(*, role: str) -> None:
    Membership.objects.filter(workspace=house.workspace, role=role).delete()


def join(*, role: str) -> None:
    user = User.objects.get(username=f"main-{role}")
    Membership.objects.get_or_create(workspace=house.workspace, user=user, defaults={"role": role})


COMMANDS = {call.__name__: call for call in (sign_in, sign_out, new_task, change, nudge, leave, join)}

for line in sys.stdin:
    wish = json.loads(line)
    sys.stdout.write(json.dumps(COMMANDS[wish.pop("do")](**wish)) + "\n")
    sys.stdout.flush()
