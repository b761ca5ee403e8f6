"""Write how a delivery ended: once, with the fact in the task's history, and with a nudge to whoever looks."""

from datetime import timedelta
from typing import Any

from django.db import transaction

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app import nudges
from tasks_app.errors import SafeMode
from tasks_app.models import Delivery
from tasks_app.services import clock, lifecycle, uploads
from tasks_app.services.moves import Fact

TRIES = 8
FIRST_WAIT = timedelta(seconds=2)
LONGEST_WAIT = timedelta(minutes=2)


def settle(delivery: Delivery, state: DeliveryState, **columns: Any) -> None:
    """Move an open delivery to its last state; whoever comes second changes nothing."""
    if "message" in columns:
        columns["message"] = str(columns["message"])[:1000]
    with transaction.atomic():
        settled = (
            Delivery.objects.unsettled()
            .filter(pk=delivery.pk)
            .update(state=state, settled_at=clock.database_now(), look_again_at=None, **columns)
        )
        delivery.refresh_from_db()
        if settled:
            tell(delivery)
    uploads.discard(uploads.folder(delivery.pk))


def put_off(delivery: Delivery, *, code: str, message: str) -> None:
    """Have a queued delivery looked at again later, each time after a longer wait; after the last try it has failed."""
    if delivery.attempts >= TRIES:
        settle(
            delivery, DeliveryState.FAILED, code=code, message=f"Given up after {delivery.attempts} tries. {message}"
        )
        return
    wait = min(FIRST_WAIT * 2 ** max(0, delivery.attempts - 1), LONGEST_WAIT)
    Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.QUEUED).update(
        code=code, message=message[:1000], look_again_at=clock.database_now() + wait
    )


def hold(delivery: Delivery, why: SafeMode) -> None:
    """Let a queued delivery wait, and say so: the first sweep after the confirmation goes on with it."""
    waiting = Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.QUEUED).exclude(code=why.code)
    if waiting.update(code=why.code, message=why.message[:1000]):
        nudges.task_changed(delivery.task_id, delivery.task.workspace_id)


def tell(delivery: Delivery) -> None:
    """Record the fact in the task's history, once, in the caller's transaction."""
    data = {
        "delivery": delivery.pk,
        "node": delivery.node,
        "generation": delivery.generation,
        "branch": delivery.branch,
        "commit": delivery.commit,
        "code": delivery.code,
    }
    task = delivery.task
    fact = Fact(f"delivery.{delivery.state}", data=data, key=f"delivery:{delivery.pk}:{delivery.state}")
    lifecycle.tell(task, [fact], now=clock.database_now(), actor="system:delivery", rev=task.rev)
    nudges.task_changed(task.pk, task.workspace_id)
