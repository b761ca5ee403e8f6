"""How every page finds out who asks and whether they may: through the one authorisation function."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.db.models import Q
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse

from tasks_app.models import Task
from tasks_app.states import LIVE
from workspaces_app.access import Actor, Permission, actor_of_user, authorise
from workspaces_app.errors import Forbidden, NotVisible, Unauthenticated
from workspaces_app.ids import looks_like_id

NEEDS_YOU = Q(status__in=LIVE, contact__attention__gt=0)

P = ParamSpec("P")
Page = Callable[Concatenate[HttpRequest, Actor, P], HttpResponseBase]


def page(view: Page[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Give the view the actor; somebody anonymous is sent to sign in, what is not theirs answers 404."""

    @wraps(view)
    def gated(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        actor = actor_of_user(request.user)
        if actor.user_id is None:
            return redirect(reverse("sign-in"))
        try:
            return view(request, actor, *args, **kwargs)
        except Unauthenticated:
            return redirect(reverse("sign-in"))
        except NotVisible as hidden:
            raise Http404(hidden.message) from None
        except Forbidden as forbidden:
            return render(request, "403.html", {"why": forbidden.message}, status=403)

    return gated


def attention_of(actor: Actor) -> int:
    """Count the tasks that wait for a person."""
    return Task.objects.visible_to(actor.workspaces).filter(NEEDS_YOU).count()


def visible_task(actor: Actor, task_id: str, permission: Permission = Permission.VIEW_TASKS) -> Task:
    """Give the task if ``actor`` may do ``permission`` with it. Raises NotVisible or Forbidden."""
    related = ("workspace", "creator", "repository", "flow_version__flow", "policy_revision", "contact")
    known = Task.objects.visible_to(actor.workspaces).select_related(*related)
    task = known.filter(pk=task_id).first() if looks_like_id(task_id, "tsk") else None
    if task is None:
        raise NotVisible(f"There is no task {task_id}.")
    authorise(actor, permission, task.workspace_id, creator_id=task.creator_id)
    return task
