"""What a person does on the task page: answer, command, cancel, delete. Each is one form and one call."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from sandbox_supervisor.protocol.messages import Command, CommandOutcome, CommandVerb, OutcomeCode, RequestView
from tasks_app.live import dial
from tasks_app.models import Task
from tasks_app.services import lifecycle, retention
from tasks_app.web.gates import page, visible_task
from tasks_app.web.questions import answer_of
from workspaces_app.access import Actor, Permission
from workspaces_app.errors import ControlPlaneError
from workspaces_app.ids import new_id

WORDS_LIMIT = 16_000  # characters of a message or a feedback
DONE = {
    CommandVerb.RERUN: "The node runs again.",
    CommandVerb.REWORK: "The rework request is sent; what depends on the node runs again after it.",
    CommandVerb.MESSAGE: "The message waits for the end of this turn.",
    CommandVerb.CANCEL_ATTEMPT: "The attempt is being cancelled.",
}


@require_POST
@page
def answer(request: HttpRequest, actor: Actor, task_id: str, request_id: str) -> HttpResponse:
    """Hand a person's answer to the supervisor; the first one wins, a later one is told so."""
    task = visible_task(actor, task_id, Permission.STEER_TASK)
    return _told(request, task, lambda: _answer(request, actor, task, request_id), "Answered.")


@require_POST
@page
def command(request: HttpRequest, actor: Actor, task_id: str) -> HttpResponse:
    """Rerun a node, ask for rework, send a message to a session, or cancel an attempt."""
    task = visible_task(actor, task_id, Permission.STEER_TASK)
    wish = _command(request, actor)
    return _told(request, task, lambda: _submit(task, wish), DONE[wish.verb])


@require_POST
@page
def cancel(request: HttpRequest, actor: Actor, task_id: str) -> HttpResponse:
    """Ask for the end of a task; its sandbox is kept for the window."""
    task = visible_task(actor, task_id, Permission.STEER_TASK)
    return _told(
        request, task, lambda: lifecycle.request_cancel(task.pk, actor=actor.label), "The task is being cancelled."
    )


@require_POST
@page
def delete(request: HttpRequest, actor: Actor, task_id: str) -> HttpResponse:
    """Remove a task's sandbox for good, if the task's id was typed as confirmation."""
    task = visible_task(actor, task_id, Permission.DELETE_TASK)
    if request.POST.get("confirmation") != task.pk:
        messages.error(request, f"Nothing was deleted: type {task.pk} to confirm.")
        return redirect("task", task.pk)
    return _told(request, task, lambda: retention.delete_task(task.pk, actor=actor), "The task is being deleted.")


def _answer(request: HttpRequest, actor: Actor, task: Task, request_id: str) -> None:
    upstream = dial.upstream_of(task)
    asked = next((each for each in dial.get_snapshot(upstream).requests if each.id == request_id), None)
    if asked is None:
        raise Http404("There is no such question.")
    _submit(task, _new(CommandVerb.ANSWER, actor, request=request_id, answer=_given(request, asked)))


def _given(request: HttpRequest, asked: RequestView) -> dict[str, Any]:
    if request.POST.get("act") == "decline":
        return {"declined": True}
    if asked.options:
        return {"option": request.POST.get("option", "")}
    return {"content": answer_of(asked.schema, request.POST)}


def _command(request: HttpRequest, actor: Actor) -> Command:
    form = request.POST
    match form.get("verb"):
        case "rerun":
            return _new(
                CommandVerb.RERUN, actor, nodes=(form.get("node", ""),), run_stale=form.get("run_stale") == "on"
            )
        case "rework":
            feedback = form.get("feedback", "")[:WORDS_LIMIT]
            return _new(CommandVerb.REWORK, actor, node=form.get("node", ""), feedback=feedback)
        case "message":
            return _new(
                CommandVerb.MESSAGE, actor, attempt=form.get("attempt", ""), text=form.get("text", "")[:WORDS_LIMIT]
            )
        case "cancel_attempt":
            return _new(CommandVerb.CANCEL_ATTEMPT, actor, attempt=form.get("attempt", ""))
        case _:
            raise Http404("There is no such command.")


def _new(verb: CommandVerb, actor: Actor, **arguments: Any) -> Command:
    return Command(id=new_id("cmd"), verb=verb, actor=actor.label, **arguments)


def _submit(task: Task, command: Command) -> None:
    """Send a command. Raises ControlPlaneError with the supervisor's own words when it refuses."""
    outcome: CommandOutcome = dial.post_command(dial.upstream_of(task), command)
    if outcome.code is not OutcomeCode.DONE:
        raise dial.SupervisorRefused(outcome.message or outcome.reason, status=409, code=outcome.reason)


def _told(request: HttpRequest, task: Task, act: Callable[[], object], done: str) -> HttpResponse:
    """Carry an act out and go back to where the person was, with a sentence about what came of it."""
    try:
        act()
    except ControlPlaneError as refused:
        messages.error(request, refused.message)
    else:
        messages.success(request, done)
    back = request.headers.get("Referer", "")
    if back and url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}):
        return redirect(back)
    return redirect(reverse("task", args=[task.pk]))
