"""Who may watch a task: asked when a socket opens, and again every minute while it stays open."""

from importlib import import_module

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest

from tasks_app.errors import NotVisible
from tasks_app.live.dial import Upstream, upstream_of
from tasks_app.models import Task
from workspaces_app.access import Actor, Permission, actor_of_user, authorise
from workspaces_app.models import User


def admit(session_key: str | None, task_id: str) -> Actor:
    """Let the person of a session watch a task. Raises Unauthenticated, NotVisible, Forbidden.

    The session is read anew: one that has been ended meanwhile admits nobody.
    """
    actor = _actor(session_key)
    authorise(actor, Permission.VIEW_TASKS, _workspace_of(task_id))
    return actor


def dial(task_id: str) -> Upstream:
    """Say how to reach a task's supervisor at this moment. Raises NotYet, NoSandbox, Reclaimed, NotVisible."""
    task = Task.objects.filter(pk=task_id).first()
    if task is None:
        raise NotVisible("There is no such object.")
    return upstream_of(task)


def _actor(session_key: str | None) -> Actor:
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    return actor_of_user(user if isinstance(user, User) else AnonymousUser())


def _workspace_of(task_id: str) -> str:
    """Give the task's workspace, or "" (which nobody is a member of) for a task that does not exist."""
    return Task.objects.filter(pk=task_id).values_list("workspace_id", flat=True).first() or ""
