"""Remove sandboxes whose time is over. The only module that can make an Authority."""

from datetime import timedelta

import structlog

from sandbox_providers.contract import Authority, ProviderError, Report
from tasks_app import queue
from tasks_app.errors import Stale
from tasks_app.kernel import Seen
from tasks_app.models import Task
from tasks_app.services import clock, deployment, leases, lifecycle
from tasks_app.services.moves import Fact
from tasks_app.services.observation import reference_of
from tasks_app.services.proof import archive_settled
from tasks_app.services.providers import provider_named
from tasks_app.services.provisioning import may_still_appear
from tasks_app.states import Presence
from workspaces_app.access import Actor, Permission, authorise
from workspaces_app.services import audit
from workspaces_app.states import Verb

log = structlog.get_logger()

LEASE = timedelta(minutes=5)
AT_ONCE = 100
WARNINGS = (("task.expiring_24h", timedelta(hours=24)), ("task.expiring_1h", timedelta(hours=1)))

_guard = clock.JumpGuard()


def reclaim(task_id: str, *, clock_trusted: bool = False) -> Task:
    """Remove the sandbox of a task that a person deleted or, when the clock is trusted, whose retention has ended.

    Safe to repeat and to race: a task that is not due, or already reclaimed, is returned unchanged. The provider is
    called only after the intent is committed, outside any transaction, and never in safe mode.
    """
    name = f"reclaim:{task_id}"
    token = leases.take(name, now=clock.database_now(), ttl=LEASE)
    if token is None:
        return lifecycle.read(task_id)[0]
    try:
        task = _claim(task_id, clock_trusted=clock_trusted)
        intended = task.presence == Presence.RECLAIMING and not task.quarantine
        return _carry_out(task) if intended and deployment.look().sound else task
    finally:
        leases.release(name, token)


def _claim(task_id: str, *, clock_trusted: bool) -> Task:
    """Commit the intent to remove, or find out that there is nothing to do."""
    return lifecycle.settle(
        task_id,
        lambda task, *_: Seen(archive_stored=archive_settled(task, task.contact), clock_trusted=clock_trusted),
        actor="system:retention",
    )


def _carry_out(task: Task) -> Task:
    report = _remove(task)
    for _ in range(lifecycle.ROUNDS):
        try:
            lifecycle.record_removal(task, report, now=clock.database_now())
        except Stale:
            task = lifecycle.read(task.pk)[0]
            continue
        break
    return lifecycle.read(task.pk)[0]


def _remove(task: Task) -> Report:
    """Stop compute, then remove every object; what remains is found again by the sweep."""
    if task.provisioning_at is None:
        return Report()
    asked_at = clock.database_now()
    try:
        provider, reference = provider_named(task.provider), reference_of(task)
        provider.terminate(reference, reason=task.removal_reason)
        report = provider.clean_up(reference, Authority(task=task.pk, reason=task.removal_reason))
    except ProviderError as error:
        log.warning("sandbox_not_removed", task_id=task.pk, code=error.code)
        return Report(remaining=(f"{error.code}: {error.message}"[:300],))
    if may_still_appear(task, asked_at):  # "gone" is said only when nothing can come any more
        return Report(removed=report.removed, remaining=("a creation whose answer is not known yet",))
    return report


def delete_task(task_id: str, *, actor: Actor) -> Task:
    """Remove a task's sandbox because a person says so: the graph is cancelled, a snapshot asked for, then all removed.

    The row stays. Repeating it changes nothing. Raises NotVisible, Forbidden.
    """
    task = lifecycle.read(task_id)[0]
    authorise(actor, Permission.DELETE_TASK, task.workspace_id, creator_id=task.creator_id)
    if task.delete_requested_at is None:
        audit.record(actor, Verb.TASK_DELETED, kind="task", object_id=task.pk, workspace_id=task.workspace_id)
    task = lifecycle.request_delete(task_id, actor=actor.label)
    queue.reclaim(task_id)
    return task


def archive_arrived(task_id: str) -> None:
    """Go on with a deletion that waited for the final snapshot."""
    if Task.objects.filter(pk=task_id, delete_requested_at__isnull=False).exclude(presence=Presence.RECLAIMED).exists():
        queue.reclaim(task_id)


def sweep() -> int:
    """Reclaim what is due and warn of what will be. Gives how many were looked at.

    When the database clock has jumped, deadlines wait for a pass that confirms it; deletions by a person do not.
    """
    now = clock.database_now()
    trusted = _guard.trusted(now)
    if not trusted:
        log.error("database_clock_jumped", now=now.isoformat())
    due = list(Task.objects.due_for_reclaim(now).order_by("?").values_list("pk", flat=True)[:AT_ONCE])  # none starves
    for task_id in due:
        try:
            reclaim(task_id, clock_trusted=trusted)
        except Exception:
            log.exception("reclaim_failed", task_id=task_id)
    warn()
    return len(due)


def warn() -> None:
    """Tell each ended task once when a day, and when an hour, is left."""
    now = clock.database_now()
    for kind, window in WARNINGS:
        for task in Task.objects.expiring_within(now, window).exclude(events__key=kind)[:AT_ONCE]:
            left = {"retain_until": task.retain_until.isoformat() if task.retain_until else None}
            lifecycle.tell(
                task, [Fact("task.expiring", left, key=kind)], now=now, actor="system:retention", rev=task.rev
            )
