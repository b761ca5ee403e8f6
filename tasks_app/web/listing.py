"""The task list: needs you, running, kept, failed, all; by cursor, newest first."""

from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from sandbox_supervisor.protocol.states import NODE_ENDED, NodeState
from tasks_app import bars
from tasks_app.models import Task
from tasks_app.states import LIVE, STANDING, TERMINAL, Status
from tasks_app.web import pictures, vocabulary
from tasks_app.web.gates import NEEDS_YOU, attention_of, page
from workspaces_app.access import Actor
from workspaces_app.ids import looks_like_id
from workspaces_app.models import Workspace

ROWS = 50

VIEWS: dict[str, tuple[str, Q]] = {
    "": ("Open and recent", Q(status__in=LIVE) | Q(presence__in=STANDING)),
    "needs-you": ("Needs you", NEEDS_YOU),
    "running": ("Running", Q(status__in=LIVE)),
    "kept": ("Kept, expiring", Q(status__in=TERMINAL, presence__in=STANDING)),
    "failed": ("Failed", Q(status=Status.FAILED)),
    "all": ("All", Q()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    task: Task
    states: list[NodeState]

    @property
    def done(self) -> int:
        return sum(state in NODE_ENDED for state in self.states)

    @property
    def summary(self) -> str:
        return pictures.bar_summary(self.states)

    @property
    def shapes(self) -> list[tuple[str, str]]:
        signs = [vocabulary.NODE[state] for state in self.states]
        return [(sign.shape, sign.tone) for sign in signs]


@page
def tasks(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Show the tasks of the member's workspaces; ``view``, ``q`` and ``before`` (an id) choose and page."""
    chosen = request.GET.get("view", "")
    view = chosen if chosen in VIEWS else ""
    visible = Task.objects.visible_to(actor.workspaces)
    search = request.GET.get("q", "").replace("\0", "").strip()[:200]  # no database column holds a NUL
    rows, following = _page_of(_searched(visible.filter(VIEWS[view][1]), search), request.GET.get("before", ""))
    context = {
        "workspace": Workspace.objects.filter(pk__in=actor.workspaces).order_by("slug").first(),
        "views": [(name, words, visible.filter(where).count()) for name, (words, where) in VIEWS.items()],
        "view": view,
        "search": search,
        "rows": rows,
        "following": following,
        "attention": attention_of(actor),
        "now": timezone.now(),
        "any_task": visible.exists(),
    }
    return render(request, "console/tasks.html", context)


def _searched(tasks: QuerySet[Task], words: str) -> QuerySet[Task]:
    if not words:
        return tasks
    return tasks.filter(
        Q(title__icontains=words) | Q(task_branch__icontains=words) | Q(base_commit__startswith=words) | Q(pk=words)
    )


def _page_of(tasks: QuerySet[Task], before: str) -> tuple[list[Row], str]:
    """Give one page and the id that the next one continues from, empty at the end."""
    if looks_like_id(before, "tsk"):
        tasks = tasks.filter(pk__lt=before)
    related = ("repository", "creator", "flow_version__flow", "contact")
    found = list(tasks.select_related(*related).order_by("-id")[: ROWS + 1])
    shown = found[:ROWS]
    known = bars.of(task.pk for task in shown)
    rows = [Row(task=task, states=pictures.bar_states(known.get(task.pk, ""))) for task in shown]
    return rows, shown[-1].pk if len(found) > ROWS else ""
