"""Leases: one holder at a time, by compare-and-set on the database; a dead holder's runs out."""

import secrets
from datetime import datetime, timedelta

from django.db.models import Q

from tasks_app.models import Lease


def take(name: str, *, now: datetime, ttl: timedelta) -> str | None:
    """Give the token of a lease that is now ours until ``now + ttl``; None while somebody else holds it."""
    free = Q(held_until__isnull=True) | Q(held_until__lte=now)
    token, until = secrets.token_hex(16), now + ttl
    if Lease.objects.filter(free, name=name).update(token=token, held_until=until):
        return token
    _, made = Lease.objects.get_or_create(name=name, defaults={"token": token, "held_until": until})
    return token if made else None


def renew(name: str, token: str, *, now: datetime, ttl: timedelta) -> bool:
    """Hold on; False when the lease ran out or is somebody else's: then stop, and write nothing more."""
    mine = Lease.objects.filter(name=name, token=token, held_until__gt=now)
    return mine.update(held_until=now + ttl) == 1


def holds(name: str, token: str, *, now: datetime) -> bool:
    """Say whether the lease is still ours: asked again in the transaction that writes."""
    return Lease.objects.filter(name=name, token=token, held_until__gt=now).exists()


def release(name: str, token: str) -> None:
    """Give it back early. A lease that is not ours stays as it is."""
    Lease.objects.filter(name=name, token=token).update(token="", held_until=None)


def tick(name: str, *, now: datetime, patience: timedelta) -> datetime:
    """Record that a sweep runs at ``now``; give since when no tick was missed for longer than ``patience``.

    A clock that went backwards counts as a missed tick.
    """
    unbroken = Lease.objects.filter(name=name, ticked_at__range=(now - patience, now), unbroken_since__isnull=False)
    if not unbroken.update(ticked_at=now):
        Lease.objects.update_or_create(name=name, defaults={"ticked_at": now, "unbroken_since": now})
    return Lease.objects.values_list("unbroken_since", flat=True).get(name=name) or now
