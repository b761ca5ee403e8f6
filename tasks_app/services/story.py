"""Tell the story of one task from all tables, for a person who asks why."""

from datetime import datetime
from typing import Any

from tasks_app.errors import ControlPlaneError
from tasks_app.kernel import Seen, decide, desired
from tasks_app.models import Task
from tasks_app.services import clock, deployment, lifecycle
from tasks_app.services.facts import ImpossibleRow, facts_of, limits_of
from tasks_app.services.proof import archive_settled

MOMENTS = (
    "created_at",
    "provisioning_at",
    "provisioned_at",
    "running_at",
    "secret_withdrawn_at",
    "cancel_requested_at",
    "delete_requested_at",
    "first_terminal_at",
    "retain_until",
    "lost_at",
    "reclaimed_at",
)


def explain(task_id: str) -> list[str]:
    """Give lines: what the row says, when what happened, what left it, what the kernel would say now. Changes nothing.

    Raises NotVisible.
    """
    task, contact = lifecycle.read(task_id)
    lines = [
        f"{task.pk}  {task.title}",
        f"status {task.status}, presence {task.presence}, health {task.health}, round {task.round}",
        f"sandbox {task.sandbox_name} of {task.provider} {task.provider_version}, secret {task.secret}",
        f"instance {task.instance or 'unknown'}",
    ]
    if task.quarantine:
        lines.append(f"QUARANTINED: {task.quarantine}")
    if task.failure_code:
        lines.append(f"failed: {task.failure_code}: {task.failure.get('message', '')}")
    lines += [f"  {name:20} {_moment(getattr(task, name))}" for name in MOMENTS if getattr(task, name)]
    lines.append(
        f"heard {_moment(contact.last_contact_at)}, boot {contact.boot}, beat {contact.beat}, seq {contact.head_seq}"
    )
    lines += _history(task) + _left(task)
    if words := deployment.look().words:
        lines.append(f"SAFE MODE: {words}")
    lines.append(f"now: {_verdict(task)}")
    return lines


def _history(task: Task) -> list[str]:
    return [
        f"  {_moment(event.at)}  {event.kind} by {event.actor} {_plain(event.data)}".rstrip()
        for event in task.events.all()
    ]


def _left(task: Task) -> list[str]:
    deliveries = [f"delivery {row.node}.{row.generation}: {row.state} {row.commit}" for row in task.deliveries.all()]
    snapshots = [f"snapshot of round {row.round}: {row.digest}" for row in task.snapshots.all()]
    archives = [f"archive {row.kind} {row.name}: {row.state}" for row in task.archives.all()]
    return deliveries + snapshots + archives


def _verdict(task: Task) -> str:
    now = clock.database_now()
    try:
        facts = facts_of(task, task.contact)
    except (ImpossibleRow, ControlPlaneError) as error:
        return f"the row makes no sense: {error}"
    seen = Seen(
        archive_stored=archive_settled(task, task.contact), clock_trusted=True, epochs_agree=deployment.look().sound
    )
    decision = decide(facts, seen, now, limits_of(task))
    return (
        f"the supervisor is to {desired(facts)}; verdict without looking: {decision if decision else 'stays as it is'}"
    )


def _moment(moment: datetime | None) -> str:
    return moment.isoformat(timespec="milliseconds") if moment else "never"


def _plain(data: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in data.items())
