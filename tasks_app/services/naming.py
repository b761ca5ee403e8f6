"""Give a task another title: the one thing of it that a person may edit."""

from tasks_app.errors import Refused, Stale
from tasks_app.models import Task
from tasks_app.services import clock, lifecycle
from tasks_app.services.moves import Fact, Moves

TITLE_LIMIT = 200  # characters


def rename(task_id: str, title: str, *, actor: str) -> Task:
    """Set the title. The same title again changes nothing. Raises Refused for an empty or too long one, Stale."""
    wanted = " ".join(title.split())
    if not wanted or len(wanted) > TITLE_LIMIT or not wanted.isprintable():
        raise Refused(f"A title has 1 to {TITLE_LIMIT} printable characters.", code="title_malformed", pointer="/title")
    for _ in range(lifecycle.ROUNDS):
        task, _contact = lifecycle.read(task_id)
        if task.title == wanted:
            return task
        fact = Fact("task.renamed", {"before": task.title, "after": wanted})
        try:
            lifecycle.write(task, Moves(task={"title": wanted}, facts=[fact]), now=clock.database_now(), actor=actor)
        except Stale:
            continue
    task, _contact = lifecycle.read(task_id)
    if task.title != wanted:
        raise Stale("The task is changing too fast; try again.")
    return task
