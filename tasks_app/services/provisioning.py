"""Create a task's sandbox once, whatever fails in between, and withdraw its secret when it has served."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import structlog

from sandbox_providers.contract import (
    CapacityGap,
    InvalidSpec,
    Observation,
    ProviderError,
    Resources,
    SandboxRef,
    SandboxSpec,
    Secret,
    SecretBundle,
    SpecConflict,
    State,
)
from tasks_app.errors import Stale
from tasks_app.kernel import Creation, Seen, decide
from tasks_app.models import Task, TaskCredential
from tasks_app.services import clock, leases, lifecycle
from tasks_app.services.creation import lost_capabilities
from tasks_app.services.facts import facts_of, limits_of
from tasks_app.services.observation import look, reference_of
from tasks_app.services.providers import provider_named
from tasks_app.services.tokens import Audience, dial_token, task_token
from tasks_app.states import LIVE, Presence, SecretState, Status

log = structlog.get_logger()

LEASE = timedelta(seconds=60)
CREATE_PATIENCE = timedelta(seconds=60)  # after it, a call of ``create`` whose answer was lost has made nothing
AT_ONCE = 50

SECRET_KEYS = {"supervisor": ("task_token", "dial_token"), "materialise": ("download_token",)}


def provision(task_id: str) -> Task:
    """Bring the task's sandbox into being, or find out what became of an earlier try.

    Safe to repeat and to race at every point: the intent is committed before the provider is called, under a name that
    never changes. Gives the row as it is afterwards.
    """
    name = f"provision:{task_id}"
    token = leases.take(name, now=clock.database_now(), ttl=LEASE)
    if token is None:
        return lifecycle.read(task_id)[0]
    try:
        return _provision(task_id, partial(leases.holds, name, token))
    finally:
        leases.release(name, token)


def _provision(task_id: str, is_ours: Callable[..., bool]) -> Task:
    task = lifecycle.settle(task_id, lambda *_: Seen(), actor="system:provisioning")
    if task.quarantine:
        return task
    if task.status not in LIVE:
        return _resolve(task) if task.presence == Presence.CREATING else task
    if task.status == Status.RUNNING or task.presence not in {Presence.NONE, Presence.CREATING}:
        return task
    lost = lost_capabilities(task) if task.status == Status.PENDING else ""
    if lost:
        return _judge(task, Creation.GAP, lost)
    try:
        lifecycle.claim(task, now=clock.database_now())
    except Stale:
        return lifecycle.read(task_id)[0]
    task = lifecycle.read(task_id)[0]
    return _create(task) if is_ours(now=clock.database_now()) else task


def _create(task: Task) -> Task:
    creation, cause, reference = _call(task)
    return _judge(task, creation, cause) if reference is None else adopt(task.pk, reference)


def _judge(task: Task, creation: Creation, cause: str) -> Task:
    return lifecycle.settle(task.pk, lambda *_: Seen(creation=creation, cause=cause), actor="system:provisioning")


def _call(task: Task) -> tuple[Creation, str, SandboxRef | None]:
    """Call the provider, outside any transaction."""
    try:
        reference = provider_named(task.provider).create(sandbox_spec(task), secret_bundle(task))
    except (InvalidSpec, SpecConflict) as error:
        return Creation.INVALID, error.message, None
    except CapacityGap as error:
        return Creation.NO_ROOM, error.message, None
    except ProviderError as error:
        return Creation.UNKNOWN, error.message, None
    return Creation.CREATED, "", reference


def adopt(task_id: str, reference: SandboxRef) -> Task:
    """Store the reference of the task's sandbox, also when the task has ended meanwhile: rules remove it, not this."""
    for _ in range(lifecycle.ROUNDS):
        task, contact = lifecycle.read(task_id)
        if task.sandbox is not None:
            return task
        now = clock.database_now()
        seen = Seen(creation=Creation.CREATED)
        decision = decide(facts_of(task, contact), seen, now, limits_of(task))
        try:
            lifecycle.record_reference(task, reference, decision, now=now)
        except Stale:
            continue
        TaskCredential.objects.filter(task=task, delivered_at__isnull=True).update(delivered_at=now)
        return lifecycle.settle(task_id, lambda *_: Seen(), actor="system:provisioning")
    return lifecycle.read(task_id)[0]


def _resolve(task: Task) -> Task:
    """Find out whether the creation of a task that ended meanwhile has made a sandbox. Never makes one."""
    now = clock.database_now()
    observation = look(task)
    if observation is None:
        return task
    if observation.state is not State.ABSENT:
        return adopt(task.pk, _reference(task, observation))
    if not may_still_appear(task, now):
        lifecycle.record_never_created(task, now=now)
    return lifecycle.read(task.pk)[0]


def may_still_appear(task: Task, now: datetime) -> bool:
    """Say whether a call of ``create`` without an answer may still have an effect: then absence proves nothing."""
    if task.creating_at is None or task.provisioned_at is not None:
        return False
    return now <= task.creating_at + CREATE_PATIENCE


def _reference(task: Task, observation: Observation) -> SandboxRef:
    unknown = reference_of(task)
    return SandboxRef(
        provider=unknown.provider,
        version=unknown.version,
        name=unknown.name,
        uid=unknown.uid,
        instance=observation.instance,
    )


def sandbox_spec(task: Task) -> SandboxSpec:
    """Give what to create, from the frozen columns alone."""
    policy = task.policy
    return SandboxSpec(
        key=task.pk,
        name=task.sandbox_name,
        task_id=task.pk,
        digest=task.specification_digest,
        specification=bytes(task.specification),
        image_digest=task.image_digest,
        template_reference=task.template_reference,
        runtime_class=policy.get("runtime_class") or None,
        resources=Resources(
            cpu_request=float(task.cpu_request),
            cpu_limit=float(task.cpu_limit),
            memory_request=task.memory_request,
            memory_limit=task.memory_limit,
            ephemeral_storage_limit=policy.get("ephemeral_storage_limit"),
            workspace_size=policy.get("workspace_size"),
        ),
        secret_keys=SECRET_KEYS,
        labels={"caisson.dev/task": task.pk},
    )


def secret_bundle(task: Task) -> SecretBundle:
    """Gather what this task's sandbox is given, each value for its one recipient; for one call, never stored."""
    return {
        "supervisor": {"task_token": Secret(task_token(task)), "dial_token": Secret(dial_token(task))},
        "materialise": {"download_token": Secret(task_token(task, Audience.MATERIALISE))},
    }


def withdraw_secret(task_id: str) -> Task:
    """Make sure that no copy of the task's secret can be had through the provider, once it runs or has ended.

    While a creation is under way there is nothing to be sure of; what became of it is found out first.
    """
    task = lifecycle.read(task_id)[0]
    needed = task.status in {Status.PENDING, Status.PROVISIONING} or task.presence == Presence.CREATING
    if task.secret != SecretState.PRESENT or needed or task.quarantine:
        return task
    try:
        provider_named(task.provider).withdraw_secret(reference_of(task))
    except ProviderError as error:
        log.warning("secret_not_withdrawn", task_id=task_id, code=error.code)
        return task
    for _ in range(lifecycle.ROUNDS):
        task = lifecycle.read(task_id)[0]
        try:
            lifecycle.record_withdrawal(task, now=clock.database_now())
        except Stale:
            continue
        break
    return lifecycle.read(task_id)[0]


def sweep() -> int:
    """Carry on with every creation that is due. Gives how many were looked at."""
    due = Task.objects.due_for_provisioning(clock.database_now()).order_by("pk")
    return _each(provision, list(due.values_list("pk", flat=True)[:AT_ONCE]))


def sweep_secrets() -> int:
    """Withdraw every secret that has served. Gives how many were looked at."""
    due = Task.objects.due_for_withdrawal().order_by("pk")
    return _each(withdraw_secret, list(due.values_list("pk", flat=True)[:AT_ONCE]))


def _each(work: Callable[[str], Task], task_ids: list[str]) -> int:
    """Do the work for each; one that fails never keeps the others from it."""
    for task_id in task_ids:
        try:
            work(task_id)
        except Exception:
            log.exception("provisioning_failed", task_id=task_id)
    return len(task_ids)
