"""Publish the history: each entry nudges the open pages once more, in case its first nudge was lost."""

from tasks_app import nudges
from tasks_app.models import TaskEvent
from tasks_app.services import clock

AT_ONCE = 500


def sweep() -> int:
    """Publish what was not published yet, in order. Gives how many entries that were."""
    rows = list(TaskEvent.objects.unpublished().values_list("pk", "task_id", "task__workspace_id")[:AT_ONCE])
    for task_id, workspace_id in dict.fromkeys((task, workspace) for _, task, workspace in rows):
        nudges.task_changed(task_id, workspace_id)
    TaskEvent.objects.filter(pk__in=[pk for pk, _, _ in rows]).update(published_at=clock.database_now())
    return len(rows)
