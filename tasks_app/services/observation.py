"""Look at the sandboxes of tasks through their providers, and let the kernel say what it means."""

import structlog

from sandbox_providers.contract import Observation, ProviderError, SandboxRef
from tasks_app.kernel import Seen
from tasks_app.models import Task
from tasks_app.services import lifecycle
from tasks_app.services.providers import provider_named
from tasks_app.states import Presence

log = structlog.get_logger()


def observe(task_id: str) -> Task:
    """Look at one task's sandbox and commit what follows. A provider's error is no observation and changes nothing."""
    task, _contact = lifecycle.read(task_id)
    if task.presence != Presence.PRESENT:
        return task
    observation = look(task)
    if observation is None:
        return task
    return lifecycle.settle(task_id, lambda *_: Seen(observation=observation), actor="system:observation")


def look(task: Task) -> Observation | None:
    """Ask the provider; None when it cannot say."""
    try:
        return provider_named(task.provider).observe(reference_of(task))
    except ProviderError as error:
        log.warning("sandbox_not_observed", task_id=task.pk, code=error.code)
        return None


def reference_of(task: Task) -> SandboxRef:
    """Give the stored reference, or one for whatever stands under the task's name when the answer was lost."""
    stored = task.sandbox_ref
    if stored is not None:
        return stored
    return SandboxRef(provider=task.provider, version=task.provider_version, name=task.sandbox_name, uid="")


def sweep() -> int:
    """Look at every sandbox that stands, of ended tasks as well.

    One task that cannot be looked at never keeps the others from it. Gives how many were looked at.
    """
    due = list(Task.objects.due_for_observation().order_by("pk").values_list("pk", flat=True))  # the quota bounds it
    for task_id in due:
        try:
            observe(task_id)
        except Exception:
            log.exception("observation_failed", task_id=task_id)
    return len(due)


def first_sight(task_id: str) -> None:
    """Look at a sandbox of which the instance or the endpoint is not known yet: a heartbeat waits for it."""
    task, _contact = lifecycle.read(task_id)
    if task.presence == Presence.PRESENT and (not task.instance or task.endpoint is None):
        observe(task_id)
