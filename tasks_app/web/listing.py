"""The task list: needs you, running, kept, failed, all; by cursor, newest first, what is open under headings."""

import itertools
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from sandbox_supervisor.protocol.states import NODE_ENDED, NodeState
from tasks_app import bars
from tasks_app.models import Task
from tasks_app.states import LIVE, STANDING, TERMINAL, Status
from tasks_app.web import pictures, vocabulary
from tasks_app.web.gates import NEEDS_YOU, attention_of, page
from tasks_app.web.vocabulary import Tone
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
GROUPED = ""  # the view that comes under headings


@dataclass(frozen=True, slots=True)
class Heading:
    name: str
    glyph: str
    tone: Tone
    note: str
    where: Q


HEADINGS = (
    Heading("Needs you", "ask", Tone.ASK, "a person is asked before the work goes on", NEEDS_YOU),
    Heading("Running", "run", Tone.RUN, "", Q(status__in=LIVE)),
    Heading("Failed", "bad", Tone.BAD, "the sandbox is still there to look at", Q(status=Status.FAILED)),
    Heading("Kept, expiring", "kept", Tone.IDLE, "the sandbox is removed at the deadline; results stay", Q()),
)
"""In the order in which a person looks; the first whose condition fits a task has it, the last takes the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    task: Task
    states: list[NodeState]
    rank: int  # of its heading

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    rows: list[Row]
    heading: Heading | None = None


@page
def tasks(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Show the tasks of the member's workspaces; ``view``, ``q`` and ``before`` (the last row's) choose and page."""
    chosen = request.GET.get("view", "")
    view = chosen if chosen in VIEWS else ""
    visible = Task.objects.visible_to(actor.workspaces)
    search = request.GET.get("q", "").replace("\0", "").strip()[:200]  # no database column holds a NUL
    found = _searched(visible.filter(VIEWS[view][1]), search)
    rows, following = _page_of(_ranked(found, grouped=view == GROUPED), request.GET.get("before", ""))
    context = {
        "workspace": Workspace.objects.filter(pk__in=actor.workspaces).order_by("slug").first(),
        "views": [(name, words, visible.filter(where).count()) for name, (words, where) in VIEWS.items()],
        "view": view,
        "search": search,
        "groups": _groups(rows) if view == GROUPED else [Group(rows=rows)] if rows else [],
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


def _ranked(tasks: QuerySet[Task], *, grouped: bool) -> QuerySet[Any]:
    """Give each task the place of its heading as ``rank``, in the order of the list: of ids alone without headings."""
    if not grouped:
        return tasks.annotate(rank=Value(0)).order_by("-id")
    *first, _rest = HEADINGS
    ranks = [When(heading.where, then=Value(rank)) for rank, heading in enumerate(first)]
    ranked = tasks.annotate(rank=Case(*ranks, default=Value(len(first)), output_field=IntegerField()))
    return ranked.order_by("rank", "-id")


def _page_of(tasks: QuerySet[Any], before: str) -> tuple[list[Row], str]:
    """Give one page, and where the next one continues (``<rank>.<id>`` of the last row), empty at the end."""
    rank, _, last = before.partition(".")
    if rank.isascii() and rank.isdecimal() and len(rank) < 3 and looks_like_id(last, "tsk"):
        tasks = tasks.filter(Q(rank__gt=int(rank)) | Q(rank=int(rank), pk__lt=last))
    related = ("repository", "creator", "flow_version__flow", "contact")
    found = list(tasks.select_related(*related)[: ROWS + 1])
    shown = found[:ROWS]
    known = bars.of(task.pk for task in shown)
    rows = [Row(task=task, states=pictures.bar_states(known.get(task.pk, "")), rank=task.rank) for task in shown]
    return rows, f"{rows[-1].rank}.{rows[-1].task.pk}" if len(found) > ROWS else ""


def _groups(rows: list[Row]) -> list[Group]:
    by_rank = itertools.groupby(rows, key=lambda row: row.rank)
    return [Group(rows=list(members), heading=HEADINGS[rank]) for rank, members in by_rank]
