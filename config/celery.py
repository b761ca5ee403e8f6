"""The Celery application. A job carries ids only; its row is the truth and a sweep finds what the queue forgot."""

import os

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from django.conf import settings

app = Celery("caisson")
app.conf.update(
    broker_url=settings.REDIS_URL.replace("unix://", "redis+socket://", 1),
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3600, "socket_timeout": 30},
    task_serializer="json",
    accept_content=["json"],
    result_backend=None,
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
    task_default_queue="caisson",
    timezone="UTC",
    imports=["tasks_app.jobs"],
)


@setup_logging.connect  # type: ignore[untyped-decorator]
def _keep_our_logging(**_: object) -> None:
    """Leave the handlers alone that the settings have set up."""


@app.on_after_finalize.connect  # type: ignore[untyped-decorator]
def _schedule(sender: Celery, **_: object) -> None:
    from config.schedule import BEAT_SCHEDULE

    sender.conf.beat_schedule = BEAT_SCHEDULE
