"""Celery entry points: an id in, one service call, safe twice and out of order."""

from collections.abc import Callable

from config.celery import app
from tasks_app.live import wishes
from tasks_app.services import delivery, provisioning, retention, sweeps


def _job(name: str) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    """Register under the name that ``queue`` and the schedule send."""
    register: Callable[[Callable[[str], None]], Callable[[str], None]] = app.task(name=name)
    return register


@_job("tasks.provision")
def provision(task_id: str) -> None:
    provisioning.provision(task_id)


@_job("tasks.withdraw_secret")
def withdraw_secret(task_id: str) -> None:
    provisioning.withdraw_secret(task_id)


@_job("tasks.reclaim")
def reclaim(task_id: str) -> None:
    retention.reclaim(task_id)


@_job("tasks.cancel")
def cancel(task_id: str) -> None:
    wishes.cancel(task_id)


@_job("tasks.deliver")
def deliver(delivery_id: str) -> None:
    delivery.deliver(delivery_id)


@_job("tasks.sweep")
def sweep(name: str) -> None:
    sweeps.run(name)
