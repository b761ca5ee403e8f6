"""Insert the task once for one idempotency key, and ask for its sandbox."""

from dataclasses import dataclass

from django.db import IntegrityError, transaction

from sandbox_supervisor.protocol import codec
from tasks_app import nudges, queue
from tasks_app.errors import BaselineRefused, ControlPlaneError, KeyReused, Refused
from tasks_app.models import IdempotencyRecord, Task, TaskContact
from tasks_app.services import clock, lifecycle, quotas
from tasks_app.services.creation.prepare import Prepared, prepare
from tasks_app.services.creation.request import TaskRequest
from tasks_app.services.moves import Fact
from workspaces_app.access import Actor, Permission, authorise

METHOD, PATH = "POST", "/api/v1/tasks"
KEY_LIMIT = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """``replayed``: the key was used before with the same request, and this is the task of then."""

    task: Task
    replayed: bool
    warnings: tuple[str, ...] = ()


def create_task(actor: Actor, request: TaskRequest, *, idempotency_key: str) -> Created:
    """Create a task with everything frozen and ask for its sandbox on commit.

    The same key with the same request gives the same task, also when both come at once. Raises KeyReused for another
    request, QuotaReached, and what ``prepare`` raises; then nothing was created.
    """
    if not 0 < len(idempotency_key) <= KEY_LIMIT or not idempotency_key.isprintable():
        raise Refused("Idempotency-Key is 1 to 200 printable characters.", code="idempotency_key_malformed")
    authorise(actor, Permission.CREATE_TASK, request.workspace_id)
    earlier = _earlier(actor, request, idempotency_key)
    if earlier is not None:
        return earlier
    try:
        return _create(actor, request, idempotency_key)
    except (IntegrityError, ControlPlaneError):  # what is in the way may be what the same key has just made
        earlier = _earlier(actor, request, idempotency_key)
        if earlier is None:
            raise
        return earlier


def _create(actor: Actor, request: TaskRequest, key: str) -> Created:
    prepared = prepare(actor, request)
    try:
        return _insert(actor, request, key, prepared)
    except IntegrityError:
        branch = prepared.columns["task_branch"]
        if not Task.objects.holding_branch(prepared.columns["push_url"], branch).exists():
            raise
        raise BaselineRefused(
            f"Another task has the branch {branch}.", code="branch_taken", pointer="/task_branch"
        ) from None


def validate_task(actor: Actor, request: TaskRequest) -> Prepared:
    """Go the way of ``create_task`` and stop before the insert. Raises what that raises, but for the quota."""
    return prepare(actor, request)


def _earlier(actor: Actor, request: TaskRequest, key: str) -> Created | None:
    record = (
        IdempotencyRecord.objects.select_related("task")
        .filter(user_id=actor.user_id or 0, method=METHOD, path=PATH, key=key)
        .first()
    )
    if record is None or record.task is None:
        return None
    if record.body_digest != codec.digest(request):
        raise KeyReused("This Idempotency-Key was used for another request; choose a new one.")
    return Created(task=record.task, replayed=True, warnings=tuple((record.response or {}).get("warnings", ())))


def _insert(actor: Actor, request: TaskRequest, key: str, prepared: Prepared) -> Created:
    """One transaction, short: no network, no lock but the counters' rows."""
    now = clock.database_now()
    with transaction.atomic():
        quotas.hold(request.workspace_id, limit=prepared.live_task_quota)
        task = Task.objects.create(created_at=now, **prepared.columns)
        TaskContact.objects.create(task=task)
        IdempotencyRecord.objects.create(
            user=prepared.columns["creator"],
            key=key,
            method=METHOD,
            path=PATH,
            body_digest=codec.digest(request),
            task=task,
            response_status=201,
            response={"warnings": list(prepared.warnings)},
            created_at=now,
        )
        created = Fact("task.created", {"warnings": list(prepared.warnings)})
        lifecycle.tell(task, [created], now=now, actor=actor.label, rev=task.rev)
        nudges.task_changed(task.pk, task.workspace_id)
        queue.provision(task.pk)
    return Created(task=task, replayed=False, warnings=prepared.warnings)
