"""Forget what has served: answers to idempotency keys, leases that nobody holds, uploads that nobody can finish."""

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog
from django.db.models import Q

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app.models import Archive, Delivery, IdempotencyRecord, Lease
from tasks_app.models.outcome import ArchiveState
from tasks_app.services import clock, deployment, uploads
from tasks_app.services.delivery import outcome
from tasks_app.states import GONE

log = structlog.get_logger()

KEY_LIFE = timedelta(days=7)  # an idempotency key is remembered this long
AT_ONCE = 1000


def sweep() -> int:
    """Remove what has served, a bounded part in one pass, and nothing in safe mode. Gives how much that was."""
    if not deployment.look().sound:
        return 0
    now = clock.database_now()
    kinds: tuple[Callable[[datetime], int], ...] = (_answers, _leases, _archives, _bundles)
    count = sum(forget(now) for forget in kinds)
    if count:
        log.info("leftovers_removed", count=count)
    return count


def _answers(now: datetime) -> int:
    old = IdempotencyRecord.objects.filter(created_at__lt=now - KEY_LIFE).order_by("pk").values_list("pk", flat=True)
    return IdempotencyRecord.objects.filter(pk__in=list(old[:AT_ONCE])).delete()[0]


def _leases(now: datetime) -> int:
    """A lease that leaves ticks is a memory, and stays."""
    free = Q(held_until__isnull=True) | Q(held_until__lte=now)
    return Lease.objects.filter(free, ticked_at__isnull=True).delete()[0]


def _archives(now: datetime) -> int:
    """Without a sandbox that stands no token is good for another chunk."""
    cut = list(Archive.objects.filter(state=ArchiveState.RECEIVING, task__presence__in=GONE).order_by("pk")[:AT_ONCE])
    for row in cut:
        Archive.objects.filter(pk=row.pk, state=ArchiveState.RECEIVING).update(state=ArchiveState.LOST)
        uploads.discard(uploads.folder(row.pk))
    return len(cut)


def _bundles(now: datetime) -> int:
    cut = Delivery.objects.filter(state=DeliveryState.RECEIVED, task__presence__in=GONE).select_related("task")
    rows = list(cut.order_by("pk")[:AT_ONCE])
    for row in rows:
        outcome.settle(
            row, DeliveryState.REFUSED, code="task_ended", message="The task ended before its bundle was here."
        )
    return len(rows)
