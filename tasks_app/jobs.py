"""Celery entry points: an id in, one service call, safe twice and out of order."""

from config.celery import app
from tasks_app.services import delivery, provisioning, retention, sweeps


@app.task(name="tasks.provision")
def provision(task_id: str) -> None:
    provisioning.provision(task_id)


@app.task(name="tasks.withdraw_secret")
def withdraw_secret(task_id: str) -> None:
    provisioning.withdraw_secret(task_id)


@app.task(name="tasks.reclaim")
def reclaim(task_id: str) -> None:
    retention.reclaim(task_id)


@app.task(name="tasks.deliver")
def deliver(delivery_id: str) -> None:
    delivery.deliver(delivery_id)


@app.task(name="tasks.sweep")
def sweep(name: str) -> None:
    sweeps.run(name)
