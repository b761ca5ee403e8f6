"""Judgements about what a person wants, and about the time a sandbox is kept."""

from datetime import datetime

from tasks_app.kernel.decision import NOTHING, Decision, Note, Want, failed
from tasks_app.kernel.facts import SKEW_GUARD, SNAPSHOT_PATIENCE, FrozenLimits, Seen, TaskFacts
from tasks_app.states import LIVE, FailureCode, Health, Presence, RemovalReason, Status

REMOVED = frozenset({Presence.RECLAIMING, Presence.RECLAIMED})


def judge_cancel(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """End a task that nobody works on yet; one whose supervisor was heard ends when that has confirmed it."""
    if not task.end_is_wanted or task.status not in {Status.PENDING, Status.PROVISIONING}:
        return NOTHING
    if task.heard is not None or seen.report is not None:
        return NOTHING
    return Decision(status=Status.CANCELLED)


def judge_delete(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """End a live task that a person deleted, at the latest when the patience for its snapshot is over."""
    if task.delete_requested_at is None or task.status not in LIVE:
        return NOTHING
    until = task.delete_requested_at + SNAPSHOT_PATIENCE
    return Decision(status=Status.CANCELLED) if now >= until else Decision(look_again_at=until)


def judge_retention(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """Say whether the sandbox may be removed: a person deleted the task, or its deadline has passed. Nothing else.

    What cannot be undone is said only while the deployment's epochs agree.
    """
    said = NOTHING if task.presence in REMOVED else _retention(task, seen, now, limits)
    if seen.epochs_agree or (said.removal is None and said.status is None):
        return said
    return Decision(wants=frozenset({Want.EPOCHS})) if seen.epochs_agree is None else NOTHING


def _retention(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    if task.delete_requested_at is not None and task.status not in LIVE:
        return _deleted(task, seen, now)
    if task.retain_until is None or not seen.clock_trusted:
        return NOTHING
    due_at = task.retain_until + SKEW_GUARD
    if now <= due_at:
        return NOTHING
    if task.status is Status.RUNNING:
        return _rerun_at_the_deadline(due_at, now, limits)
    until = due_at + limits.archive_patience
    if not seen.archive_stored and now <= until:
        return Decision(look_again_at=until, notes=_about_the_archive("missing", task))
    return _remove(RemovalReason.DEADLINE_PASSED, task, seen)


def _deleted(task: TaskFacts, seen: Seen, now: datetime) -> Decision:
    until = task.delete_requested_at + SNAPSHOT_PATIENCE if task.delete_requested_at else now
    can_answer = task.presence is Presence.PRESENT and task.health is Health.REACHABLE
    if can_answer and not seen.archive_stored and now < until:
        return Decision(look_again_at=until)
    return _remove(RemovalReason.PERSON_DELETED, task, seen)


def _remove(reason: RemovalReason, task: TaskFacts, seen: Seen) -> Decision:
    return Decision(removal=reason, notes=() if seen.archive_stored else _about_the_archive("lost", task))


def _about_the_archive(word: str, task: TaskFacts) -> tuple[Note, ...]:
    """Tell once in a round that its final snapshot is missing past the deadline, or will never come."""
    return (Note(kind=f"archive.{word}", key=f"archive_{word}:{task.round}", data={"round": task.round}),)


def _rerun_at_the_deadline(due_at: datetime, now: datetime, limits: FrozenLimits) -> Decision:
    until = due_at + limits.rerun_patience
    if now <= until:
        return Decision(look_again_at=until)
    message = "Its time was over while a rerun was going on; the rerun was stopped."
    return failed(FailureCode.RETENTION_ENDED, "retention", message)
