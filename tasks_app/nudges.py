"""Tell open pages that a task changed. Lossy: a nudge carries no data, and nothing depends on its arrival."""

from functools import partial

import structlog
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

log = structlog.get_logger()


def task_group(task_id: str) -> str:
    return f"task.{task_id}"


def workspace_group(workspace_id: str) -> str:
    return f"workspace.{workspace_id}"


def task_changed(task_id: str, workspace_id: str) -> None:
    """Send ``{"type": "task.changed", "task": id}`` to both groups when the transaction has committed."""
    transaction.on_commit(partial(_send, task_id, workspace_id), robust=True)


def _send(task_id: str, workspace_id: str) -> None:
    try:
        async_to_sync(_send_all)(task_id, workspace_id)
    except Exception as error:  # noqa: BLE001 - a page that is not told looks again by itself
        log.warning("nudge_not_sent", task_id=task_id, error=type(error).__name__)


async def _send_all(task_id: str, workspace_id: str) -> None:
    layer = get_channel_layer()
    message = {"type": "task.changed", "task": task_id}
    for group in (task_group(task_id), workspace_group(workspace_id)):
        await layer.group_send(group, message)
