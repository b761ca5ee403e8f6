"""The task page: header, questions, nodes, graph, and one drawer whose whole state is in the address."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from sandbox_supervisor.protocol.messages import AttemptView, Snapshot
from sandbox_supervisor.protocol.states import ATTEMPT_ENDED, GRAPH_ENDED, NodeState, RequestState
from tasks_app.models import Task
from tasks_app.web import looking, vocabulary
from tasks_app.web.drawer import Drawer, open_drawer
from tasks_app.web.gates import page, visible_task
from tasks_app.web.pictures import FlowPicture, NodeLine, flow_picture
from workspaces_app.access import Actor, Permission, allowed

FRAGMENTS = {
    "head": "console/parts/task_head.html",
    "questions": "console/parts/questions.html",
    "drawer": "console/parts/drawer.html",
    "delivery": "console/parts/delivery.html",
}
FIRST_LOOK = (NodeState.NEEDS_INPUT, NodeState.RUNNING, NodeState.FAILED)


@page
def task(request: HttpRequest, actor: Actor, task_id: str) -> HttpResponse:
    """Show a task. ``node``, ``attempt`` and ``tab`` choose what the drawer shows; ``X-Fragment`` asks for one part."""
    found = visible_task(actor, task_id)
    context = page_context(request, actor, found)
    template = FRAGMENTS.get(request.headers.get("X-Fragment", ""), "console/task.html")
    response = render(request, template, context)
    response["Vary"] = "X-Fragment, Cookie"
    return response


def page_context(request: HttpRequest, actor: Actor, found: Task) -> dict[str, Any]:
    """Gather everything that the page and its fragments show."""
    look = looking.at(found)
    flow = found.flow_version.compiled
    drawn = flow_picture(
        flow, digest=found.flow_version.digest, canonical=found.flow_version.canonical.encode(), snapshot=look.snapshot
    )
    line = _chosen(drawn, request.GET.get("node", ""))
    attempt = _attempt(line, request.GET.get("attempt", ""))
    requests = look.snapshot.requests if look.snapshot else ()
    deliveries = list(found.deliveries.all())
    return {
        "workspace": found.workspace,
        "task": found,
        "flow": flow,
        "look": look,
        "snapshot": look.snapshot,
        "drawn": drawn,
        "line": line,
        "attempt": attempt,
        "drawer": _drawer(request, found, line, attempt, look.source),
        "questions": [each for each in requests if each.state is RequestState.OPEN],
        "answered": [each for each in requests if each.state is not RequestState.OPEN],
        "deliveries": deliveries,
        "line_deliveries": [each for each in deliveries if each.node == line.key],
        "line_requests": [each for each in requests if each.node == line.key],
        "scripted": any(driver.protocol == "scripted" for driver in _drivers(found)),
        "now": timezone.now(),
        "vocabulary": vocabulary.for_scripts(),
        "may": _may(actor, found, look.snapshot, line),
    }


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


def _may(actor: Actor, found: Task, snapshot: Snapshot | None, line: NodeLine) -> dict[str, bool]:
    """Say which buttons make sense now; the services decide again when one is pressed."""
    steer = allowed(actor, Permission.STEER_TASK, found.workspace_id)
    delete = allowed(actor, Permission.DELETE_TASK, found.workspace_id, creator_id=found.creator_id)
    ended = bool(snapshot and snapshot.graph in GRAPH_ENDED)
    kept = found.presence == "present"
    return {
        "steer": steer,
        "cancel": steer and found.is_live and found.cancel_requested_at is None,
        "rerun": steer
        and kept
        and ended
        and line.state in {NodeState.FAILED, NodeState.SUCCEEDED, NodeState.CANCELLED},
        "rework": steer and kept and line.kind == "agent" and line.state in {NodeState.SUCCEEDED, NodeState.FAILED},
        "message": steer
        and kept
        and line.kind == "agent"
        and any(each.state not in ATTEMPT_ENDED for each in line.attempts),
        "delete": delete and found.delete_requested_at is None and found.presence not in {"reclaiming", "reclaimed"},
    }
