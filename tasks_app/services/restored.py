"""What a person looks at before they confirm a database: the sandboxes that it does not know, and what would go on."""

from dataclasses import dataclass

from django.conf import settings

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app.models import Delivery, Task
from tasks_app.services import clock
from tasks_app.services.providers import provider_named
from tasks_app.states import Presence


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A sandbox that stands although no task has it. It is named, and nothing ever removes it."""

    provider: str
    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Ids of what goes on after the confirmation: tasks whose sandbox is looked at for removal, and deliveries."""

    removals: tuple[str, ...]
    deliveries: tuple[str, ...]


def orphans() -> list[Orphan]:
    """List what the installed providers have and no task row knows, or knows as removed. Raises ProviderError."""
    return [orphan for provider in settings.PROVIDERS for orphan in _orphans_of(provider)]


def _orphans_of(provider: str) -> list[Orphan]:
    names = sorted(reference.name for reference in provider_named(provider).list_owned())
    rows = Task.objects.filter(sandbox_name__in=names).values_list("sandbox_name", "presence", "pk")
    known = {name: (presence, task_id) for name, presence, task_id in rows}
    found = []
    for name in names:
        presence, task_id = known.get(name, ("", ""))
        if not task_id:
            found.append(Orphan(provider=provider, name=name, why="no task of this database"))
        elif presence == Presence.RECLAIMED:
            found.append(Orphan(provider=provider, name=name, why=f"removed already, says {task_id}"))
    return found


def waiting() -> Waiting:
    """Say what the reclaimer and the deliveries would look at now."""
    due = Task.objects.due_for_reclaim(clock.database_now()).order_by("pk").values_list("pk", flat=True)
    queued = Delivery.objects.filter(state=DeliveryState.QUEUED).order_by("pk").values_list("pk", flat=True)
    return Waiting(removals=tuple(due), deliveries=tuple(queued))
