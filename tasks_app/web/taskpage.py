"""The task page: header, questions, nodes, graph, and one drawer whose whole state is in the address."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from sandbox_supervisor.protocol.messages import AttemptView
from sandbox_supervisor.protocol.states import ATTEMPT_ENDED, NodeState, RequestState
from tasks_app import bars
from tasks_app.models import Task
from tasks_app.services.actions import Action, actions_of
from tasks_app.states import STANDING
from tasks_app.web import looking, vocabulary
from tasks_app.web.drawer import Drawer, open_drawer
from tasks_app.web.gates import attention_of, page, visible_task
from tasks_app.web.pictures import FlowPicture, NodeLine, flow_picture
from workspaces_app.access import Actor

FRAGMENTS = {
    "head": "console/parts/task_head.html",
    "questions": "console/parts/questions.html",
    "asks": "console/parts/asks.html",
    "drawer": "console/parts/drawer.html",
    "delivery": "console/parts/delivery.html",
}
FIRST_LOOK = (NodeState.NEEDS_INPUT, NodeState.RUNNING, NodeState.FAILED)
RUNS_AGAIN = frozenset({NodeState.SUCCEEDED, NodeState.FAILED, NodeState.CANCELLED, NodeState.STALE})


@page
def task(request: HttpRequest, actor: Actor, task_id: str) -> HttpResponse:
    """Show a task. ``node``, ``attempt`` and ``tab`` choose what the drawer shows; ``X-Fragment`` asks for one part."""
    found = visible_task(actor, task_id)
    part = request.headers.get("X-Fragment", "")
    context = page_context(request, actor, found, part=part)
    response = render(request, FRAGMENTS.get(part, "console/task.html"), context)
    response["Vary"] = "X-Fragment, Cookie"
    return response


def page_context(request: HttpRequest, actor: Actor, found: Task, *, part: str = "") -> dict[str, Any]:
    """Gather what the page shows, or one fragment of it: what an attempt left is read only where it is shown."""
    look = looking.at(found)
    flow = found.flow_version.compiled
    bar = "" if look.snapshot else bars.of([found.pk]).get(found.pk, "")
    canonical = found.flow_version.canonical.encode()
    drawn = flow_picture(flow, digest=found.flow_version.digest, canonical=canonical, snapshot=look.snapshot, bar=bar)
    line = _chosen(drawn, request.GET.get("node", ""))
    attempt = _attempt(line, request.GET.get("attempt", ""))
    requests = look.snapshot.requests if look.snapshot else ()
    follows = found.is_live or found.presence in STANDING
    deliveries = list(found.deliveries.all())
    return {
        "workspace": found.workspace,
        "attention": attention_of(actor),
        "task": found,
        "flow": flow,
        "look": look,
        "freshness": _freshness(look.source, bar, follows=follows),
        "follows": follows,
        "snapshot": look.snapshot,
        "drawn": drawn,
        "line": line,
        "attempt": attempt,
        "drawer": _drawer(request, found, line, attempt, look.source)
        if part not in FRAGMENTS.keys() - {"drawer"}
        else None,
        "questions": [each for each in requests if each.state is RequestState.OPEN],
        "answered": [each for each in requests if each.state is not RequestState.OPEN],
        "deliveries": deliveries,
        "line_deliveries": [each for each in deliveries if each.node == line.key],
        "line_requests": [each for each in requests if each.node == line.key],
        "scripted": any(driver.protocol == "scripted" for driver in _drivers(found)),
        "now": timezone.now(),
        "vocabulary": vocabulary.for_scripts(),
        "may": _may(actor, found, line, attempt),
    }


def _freshness(source: looking.Source, bar: str, *, follows: bool) -> str:
    """Say how old the picture is."""
    match source:
        case looking.Source.LIVE:
            return "as of this page"
        case looking.Source.KEPT:
            return "final picture"
        case _ if bar:
            return "last heard"
        case _:
            return "planned" if follows else "nothing was kept"


def _chosen(drawn: FlowPicture, wanted: str) -> NodeLine:
    """Give the node that the address names, else the one a person would look at first."""
    named = next((line for line in drawn.nodes if line.key == wanted), None)
    if named:
        return named
    for state in FIRST_LOOK:
        found = next((line for line in drawn.nodes if line.state is state and line.kind != "approval"), None)
        if found:
            return found
    worked = [line for line in drawn.nodes if line.attempts]
    return max(worked, key=lambda line: line.ended_at or "", default=drawn.nodes[0])


def _attempt(line: NodeLine, wanted: str) -> AttemptView | None:
    """Give the attempt that the address names, else the newest one of the node."""
    return next((each for each in line.attempts if each.id == wanted), line.attempts[-1] if line.attempts else None)


def _drawer(
    request: HttpRequest, found: Task, line: NodeLine, attempt: AttemptView | None, source: looking.Source
) -> Drawer:
    return open_drawer(
        found, line, attempt, tab=request.GET.get("tab", ""), path=request.GET.get("path", ""), source=source
    )


def _drivers(found: Task) -> list[Any]:
    from sandbox_supervisor.protocol import codec
    from sandbox_supervisor.protocol.spec import TaskSpecification

    return list(codec.decode(bytes(found.specification), TaskSpecification).drivers.values())


def _may(actor: Actor, found: Task, line: NodeLine, attempt: AttemptView | None) -> dict[str, bool]:
    """Say which buttons make sense now; the services and the supervisor decide again when one is pressed."""
    actions = actions_of(found, actor, now=timezone.now())
    again, agent = line.state in RUNS_AGAIN, line.kind == "agent"
    working = attempt is not None and attempt.state not in ATTEMPT_ENDED
    return {
        "answer": Action.ANSWER in actions,
        "cancel": Action.CANCEL in actions,
        "rerun": Action.RERUN in actions and again,
        "rework": Action.REWORK in actions and again and agent,
        "message": Action.MESSAGE in actions and working and agent,
        "cancel_attempt": Action.CANCEL_ATTEMPT in actions and working,
        "delete": Action.DELETE in actions,
    }
