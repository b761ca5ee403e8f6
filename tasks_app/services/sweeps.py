"""The sweeps by name: each asks the database what is due now, and is harmless when run twice, late or in parallel."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tasks_app.errors import Refused
from tasks_app.models import Lease
from tasks_app.services import (
    clock,
    contact,
    delivery,
    deployment,
    leases,
    leftovers,
    observation,
    outbox,
    provisioning,
    retention,
)
from tasks_app.timetable import TIMETABLE

LATE_AFTER = 4  # periods


def _nothing() -> None:
    """Only leave a tick: a worker is alive and the queue works."""


SWEEPS: Mapping[str, Callable[[], object]] = {
    "provision": provisioning.sweep,
    "withdraw": provisioning.sweep_secrets,
    "observe": observation.sweep,
    "contact": contact.sweep,
    "deliver": delivery.sweep,
    "reclaim": retention.sweep,
    "outbox": outbox.sweep,
    "leftovers": leftovers.sweep,
    "epoch": deployment.sweep,
    "tick": _nothing,
}


def run(name: str) -> None:
    """Run one sweep, unless another worker is at it. Raises Refused for an unknown name."""
    sweep = SWEEPS.get(name)
    if sweep is None:
        raise Refused(f"There is no sweep {name!r}; there are {', '.join(SWEEPS)}.", code="unknown_sweep")
    period, lease = TIMETABLE[name].period, f"sweeping:{name}"
    token = leases.take(lease, now=clock.database_now(), ttl=max(4 * period, timedelta(minutes=1)))
    if token is None:
        return
    try:
        sweep()
        leases.tick(f"swept:{name}", now=clock.database_now(), patience=LATE_AFTER * period)
    finally:
        leases.release(lease, token)


@dataclass(frozen=True, slots=True)
class Age:
    """When a sweep last finished; ``late`` when that is too long ago, or never."""

    name: str
    finished_at: datetime | None
    late: bool


def ages() -> list[Age]:
    """Say for each sweep when it last finished: for ``/readyz`` and the console's banner."""
    now = clock.database_now()
    ticks = dict(Lease.objects.filter(name__startswith="swept:").values_list("name", "ticked_at"))
    found = []
    for name, entry in TIMETABLE.items():
        at = ticks.get(f"swept:{name}")
        found.append(Age(name, at, late=at is None or now - at > LATE_AFTER * entry.period))
    return found
