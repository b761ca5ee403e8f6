"""Ask for background work: one function per kind. A hint only: the row is the truth and a sweep finds it again."""

from functools import partial

import structlog
from celery import current_app
from django.db import transaction

log = structlog.get_logger()

STALE_AFTER = 300  # seconds; a hint that waited longer is dropped, the sweeps have been there


def provision(task_id: str) -> None:
    """Create the sandbox of a task."""
    _on_commit("tasks.provision", task_id)


def withdraw_secret(task_id: str) -> None:
    """Remove the task's secret at the provider."""
    _on_commit("tasks.withdraw_secret", task_id)


def reclaim(task_id: str) -> None:
    """Remove the sandbox of a task whose removal is due."""
    _on_commit("tasks.reclaim", task_id)


def cancel(task_id: str) -> None:
    """Tell the supervisor of a wish to end at once; the answer to its next heartbeat says the same."""
    _on_commit("tasks.cancel", task_id)


def deliver(delivery_id: str) -> None:
    """Push what a delivery node has handed over."""
    _on_commit("tasks.deliver", delivery_id)


def _on_commit(job: str, identifier: str) -> None:
    transaction.on_commit(partial(_send, job, identifier), robust=True)


def _send(job: str, identifier: str) -> None:
    try:
        current_app.send_task(job, args=[identifier], expires=STALE_AFTER, retry=False, ignore_result=True)
    except Exception as error:  # noqa: BLE001 - the broker may be away; the sweep needs no hint
        log.warning("job_not_sent", job=job, id=identifier, error=type(error).__name__)
