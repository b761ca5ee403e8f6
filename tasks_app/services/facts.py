"""Read a task's row into the kernel's facts. A row that makes no sense is refused, and its sweep goes on without it."""

from collections.abc import Mapping
from typing import Any

from sandbox_providers.contract import Endpoint
from tasks_app.kernel import Fence, FrozenLimits, TaskFacts
from tasks_app.models import Task, TaskContact
from tasks_app.states import FailureCode, Health, Presence, SecretState, Status


class ImpossibleRow(ValueError):
    """The row holds what no service of ours writes. The message names the column."""


def facts_of(task: Task, contact: TaskContact) -> TaskFacts:
    """Give what the kernel is told about ``task``. Raises ImpossibleRow."""
    try:
        return TaskFacts(
            status=Status(task.status),
            presence=Presence(task.presence),
            health=Health(task.health),
            secret=SecretState(task.secret),
            round=task.round,
            failure=FailureCode(task.failure_code) if task.failure_code else None,
            specification=task.specification_digest,
            instance=task.instance,
            endpoint=_endpoint(task.endpoint),
            trouble=task.trouble,
            heard=fence_of(contact),
            last_contact_at=contact.last_contact_at,
            unreachable_since=contact.unreachable_since,
            absent_since=task.absent_since,
            absent_reads=task.absent_reads,
            provisioning_at=task.provisioning_at,
            cancel_requested_at=task.cancel_requested_at,
            delete_requested_at=task.delete_requested_at,
            first_terminal_at=task.first_terminal_at,
            retain_until=task.retain_until,
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ImpossibleRow(f"{type(error).__name__}: {error}") from None


def limits_of(task: Task) -> FrozenLimits:
    return FrozenLimits(
        grace=task.connection_grace,
        start_deadline=task.start_deadline,
        rerun_patience=task.rerun_patience,
        archive_patience=task.archive_patience,
    )


def fence_of(contact: TaskContact) -> Fence | None:
    """Give the last heartbeat that was taken, or None when there was none."""
    if not contact.epoch:
        return None
    return Fence(
        instance=contact.instance, epoch=contact.epoch, boot=contact.boot, round=contact.round, beat=contact.beat
    )


def _endpoint(stored: Mapping[str, Any] | None) -> Endpoint | None:
    return None if stored is None else Endpoint(**stored)
