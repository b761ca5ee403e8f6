"""How every page finds out who asks and whether they may: through the one authorisation function."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from tasks_app.models import Task
from workspaces_app.access import Actor, Permission, actor_of_user, authorise
from workspaces_app.errors import Forbidden, NotVisible, Unauthenticated

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
            return HttpResponse(forbidden.message, status=403, content_type="text/plain; charset=utf-8")

    return gated


def visible_task(actor: Actor, task_id: str, permission: Permission = Permission.VIEW_TASKS) -> Task:
    """Give the task if ``actor`` may do ``permission`` with it. Raises NotVisible or Forbidden."""
    related = ("workspace", "creator", "repository", "flow_version__flow", "policy_revision", "contact")
    task = Task.objects.visible_to(actor.workspaces).select_related(*related).filter(pk=task_id).first()
    if task is None:
        raise NotVisible(f"There is no task {task_id}.")
    authorise(actor, permission, task.workspace_id, creator_id=task.creator_id)
    return task
