"""The one writer of a task's status, presence, health, secret and deadlines.

Every write is a compare-and-set on ``rev`` in one transaction with its ``TaskEvent`` rows; what is to be done about it
follows from the row after the commit, and a sweep finds it there.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction

from sandbox_providers.contract import Report, SandboxRef
from tasks_app import nudges, queue
from tasks_app.errors import IllegalMove, NotVisible, Refused, Stale
from tasks_app.kernel import Decision, Seen, TaskFacts, Want, decide
from tasks_app.models import Task, TaskContact, TaskEvent
from tasks_app.services import clock, deployment, quotas
from tasks_app.services.facts import ImpossibleRow, facts_of, limits_of
from tasks_app.services.moves import Fact, Moves, frees_capacity, move_presence, moves_of
from tasks_app.states import SECRET_MOVES, TERMINAL, Presence, SecretState, Status

log = structlog.get_logger()

KERNEL = "system:kernel"
ROUNDS = 8  # of reading and deciding before a caller gives way to the others
REMOVE_AGAIN = timedelta(seconds=30)

See = Callable[[Task, TaskFacts, frozenset[Want]], Seen]


def settle(task_id: str, see: See, *, actor: str = KERNEL) -> Task:
    """Read, decide and write until there is nothing more to say; give the row as it is then.

    ``see`` is called with the row, its facts and what the verdict before wanted to know. An observation counts for one
    write. Losing a race is normal: everything is read again.
    """
    wants: frozenset[Want] = frozenset()
    used = False
    for _ in range(ROUNDS):
        task, contact = read(task_id)
        facts = facts_or_quarantine(task, contact)
        if facts is None:
            return task
        seen = see(task, facts, wants)
        if Want.EPOCHS in wants:
            seen = replace(seen, epochs_agree=deployment.look().sound)
        if used:
            seen = replace(seen, observation=None, creation=None)
        now = clock.database_now()
        decision = _news(task, decide(facts, seen, now, limits_of(task)))
        wants = decision.wants
        if not decision and not wants:
            return task
        try:
            apply(task, decision, now=now, actor=actor, heard_at=contact.last_contact_at)
        except Stale:
            continue
        except IllegalMove as defect:
            quarantine(task_id, defect.message)
            return task
        used = True
    return read(task_id)[0]


def _news(task: Task, decision: Decision) -> Decision:
    """Leave out what the row and the history know already."""
    keys = [note.key for note in decision.notes]
    told = set(TaskEvent.objects.filter(task=task, key__in=keys).values_list("key", flat=True)) if keys else set()
    return replace(
        decision,
        notes=tuple(note for note in decision.notes if note.key not in told),
        look_again_at=decision.look_again_at if decision.look_again_at != task.look_again_at else None,
    )


def read(task_id: str) -> tuple[Task, TaskContact]:
    """Give the row and its contact. Raises NotVisible."""
    task = Task.objects.select_related("contact").filter(pk=task_id).first()
    if task is None:
        raise NotVisible("There is no such task.")
    return task, task.contact


def apply(
    task: Task, decision: Decision, *, now: datetime, actor: str = KERNEL, heard_at: datetime | None = None
) -> None:
    """Commit a verdict on ``task`` as it was read. ``heard_at`` is the last contact that the verdict rests on.

    Raises Stale when the row, or for a verdict about contact the contact, has changed since; IllegalMove for a defect.
    """
    if not decision:
        return
    write(task, moves_of(task, decision, now), now=now, actor=actor, heard_at=heard_at)


def write(task: Task, moves: Moves, *, now: datetime, actor: str, heard_at: datetime | None = None) -> None:
    """Commit moves on ``task`` by compare-and-set, with their history, and ask for what follows. Raises Stale.

    An intent to remove is not committed on a database that was restored meanwhile.
    """
    with transaction.atomic():
        freed = frees_capacity(task, moves)
        changes = moves.task | ({"quota_held": False} if freed else {})
        if not Task.objects.filter(pk=task.pk, rev=task.rev).update(rev=task.rev + 1, **changes):
            raise Stale(f"{task.pk} has changed since revision {task.rev}")
        if changes.get("presence") == Presence.RECLAIMING and not deployment.look().sound:
            raise Stale("The epochs of the deployment do not agree any more.")
        _write_contact(task, moves, heard_at)
        if freed:
            quotas.release(task.workspace_id)
        tell(task, moves.facts, now=now, actor=actor, rev=task.rev + 1)
        _ask_for_what_follows(task, changes)
    log.info("task_moved", task_id=task.pk, facts=[fact.kind for fact in moves.facts])


def tell(task: Task, facts: Sequence[Fact], *, now: datetime, actor: str, rev: int) -> None:
    """Add facts to the task's history, those with a key once only, in the caller's transaction."""
    rows = [
        TaskEvent(task_id=task.pk, at=now, kind=fact.kind, actor=actor, rev=rev, data=fact.data, key=fact.key)
        for fact in facts
    ]
    TaskEvent.objects.bulk_create(rows, ignore_conflicts=True)


def _write_contact(task: Task, moves: Moves, heard_at: datetime | None) -> None:
    """A verdict about silence must not overtake a heartbeat that came in meanwhile."""
    if not moves.contact:
        return
    unchanged = TaskContact.objects.filter(pk=task.pk, last_contact_at=heard_at)
    if not unchanged.update(**moves.contact):
        raise Stale(f"{task.pk} was heard meanwhile")


def _ask_for_what_follows(task: Task, changes: dict[str, Any]) -> None:
    nudges.task_changed(task.pk, task.workspace_id)
    status = changes.get("status", task.status)
    if "status" in changes and task.secret == SecretState.PRESENT and status in {*TERMINAL, Status.RUNNING}:
        queue.withdraw_secret(task.pk)
    if status == Status.RUNNING and {"cancel_requested_at", "delete_requested_at"} & changes.keys():
        queue.cancel(task.pk)
    if changes.get("presence") == Presence.RECLAIMING:
        queue.reclaim(task.pk)


def facts_or_quarantine(task: Task, contact: TaskContact) -> TaskFacts | None:
    """Give the facts of a row; one that makes no sense is set aside and gives None."""
    try:
        return facts_of(task, contact)
    except ImpossibleRow as error:
        quarantine(task.pk, str(error))
        return None


# --- what is not a verdict but a fact of our own doing ---------------------------------------------------------------


def claim(task: Task, *, now: datetime) -> None:
    """Commit ``pending → provisioning`` and the intent to create: from here on a sandbox may exist. Raises Stale."""
    moves = Moves(task={"creating_at": now})
    if task.status == Status.PENDING:
        moves.task.update(status=Status.PROVISIONING, provisioning_at=now)
        moves.facts.append(Fact("task.provisioning"))
    if task.presence == Presence.NONE:
        move_presence(task, Presence.CREATING, moves)
        _move_secret(task, SecretState.PRESENT, moves)
    write(task, moves, now=now, actor="system:provisioning")


def record_reference(task: Task, reference: SandboxRef, decision: Decision, *, now: datetime) -> None:
    """Store the provider's reference together with the verdict that the sandbox exists. Raises Stale."""
    moves = moves_of(task, decision, now)
    moves.task["sandbox"] = reference.to_json()
    if reference.instance and not task.instance:
        moves.task["instance"] = reference.instance
    write(task, moves, now=now, actor="system:provisioning")


def record_never_created(task: Task, *, now: datetime) -> None:
    """Record that the creation of an ended task made nothing, and never will. A lost race changes nothing."""
    moves = Moves(task={"lost_at": now})
    move_presence(task, Presence.LOST, moves)
    _move_secret(task, SecretState.WITHDRAWN, moves)
    moves.task["secret_withdrawn_at"] = now
    with suppress(Stale):
        write(task, moves, now=now, actor="system:provisioning")


def record_withdrawal(task: Task, *, now: datetime) -> None:
    """Record that no copy of the secret can be had any more. A second call changes nothing. Raises Stale."""
    if task.secret != SecretState.PRESENT:
        return
    moves = Moves(task={"secret_withdrawn_at": now}, facts=[Fact("secret.withdrawn")])
    _move_secret(task, SecretState.WITHDRAWN, moves)
    write(task, moves, now=now, actor="system:provisioning")


def record_removal(task: Task, report: Report, *, now: datetime) -> None:
    """Record what a removal left: reclaimed when nothing remains, else when to try again. Raises Stale."""
    if task.presence != Presence.RECLAIMING:
        return
    if report.remaining:
        delay = REMOVE_AGAIN * min(2**task.attempts, 32)
        again = {"attempts": task.attempts + 1, "look_again_at": now + delay}
        moves = Moves(task={**again, "removal_remaining": list(report.remaining)})
        write(task, moves, now=now, actor="system:retention")
        return
    moves = Moves(task={"reclaimed_at": now, "removal_remaining": [], "endpoint": None, "look_again_at": None})
    move_presence(task, Presence.RECLAIMED, moves)
    if task.secret == SecretState.PRESENT:
        _move_secret(task, SecretState.WITHDRAWN, moves)
        moves.task["secret_withdrawn_at"] = now
    write(task, moves, now=now, actor="system:retention")


def _move_secret(task: Task, after: SecretState, moves: Moves) -> None:
    if after in SECRET_MOVES[SecretState(task.secret)]:
        moves.task["secret"] = after


def request_cancel(task_id: str, *, actor: str) -> Task:
    """Record the wish to end the graph, and end at once what nobody works on yet. Repeating it changes nothing.

    Raises Refused (``already_ended``) for a task that has ended.
    """
    return _wish(task_id, "cancel_requested_at", Fact("task.cancel_requested"), actor)


def request_delete(task_id: str, *, actor: str) -> Task:
    """Record the wish to remove the sandbox; ``services/retention`` carries it out. Repeating it changes nothing."""
    return _wish(task_id, "delete_requested_at", Fact("task.delete_requested"), actor)


def _wish(task_id: str, column: str, fact: Fact, actor: str) -> Task:
    for _ in range(ROUNDS):
        task, _contact = read(task_id)
        if getattr(task, column) is not None:
            break
        if column == "cancel_requested_at" and task.status in TERMINAL:
            raise Refused(f"The task is {task.status} already.", code="already_ended", status=task.status)
        now = clock.database_now()
        try:
            write(task, Moves(task={column: now}, facts=[fact]), now=now, actor=actor)
        except Stale:
            continue
        break
    return settle(task_id, lambda *_: Seen(), actor=actor)


def quarantine(task_id: str, why: str) -> None:
    """Set an impossible row aside: it is shown with its reason, and no sweep depends on it any more."""
    Task.objects.filter(pk=task_id, quarantine="").update(quarantine=why[:500])
    log.error("task_quarantined", task_id=task_id, why=why)


def unquarantine(task_id: str) -> None:
    """Give a row that a person has repaired back to the sweeps."""
    Task.objects.filter(pk=task_id).update(quarantine="")
