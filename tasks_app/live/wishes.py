"""Tell a supervisor what a person wants, without waiting for its next heartbeat."""

from sandbox_supervisor.protocol.messages import Command, CommandVerb
from tasks_app.live import dial
from tasks_app.models import Task
from tasks_app.states import Status
from workspaces_app.errors import ControlPlaneError

ACTOR = "system:lifecycle"


def cancel(task_id: str) -> None:
    """End the graph of a running task that somebody wants to be cancelled or deleted.

    Safe to repeat: the command has one id for each round. A supervisor that cannot be asked hears of it in the
    answer to its next heartbeat.
    """
    task = Task.objects.filter(pk=task_id, status=Status.RUNNING).first()
    if task is None or not (task.cancel_requested_at or task.delete_requested_at):
        return
    wish = Command(id=f"cancel-{task.pk}-{task.round}", verb=CommandVerb.CANCEL, actor=ACTOR)
    try:
        dial.post_command(dial.upstream_of(task), wish)
    except ControlPlaneError:
        return
