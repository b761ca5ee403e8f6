"""Hold a database lease while a long transfer runs: renewed beside it, confirmed before the effect."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from django.db import DatabaseError, close_old_connections, connection

from tasks_app.services import clock, leases

log = structlog.get_logger()

TTL = timedelta(seconds=60)
RENEW_EVERY = 15.0  # seconds


class LeaseLost(Exception):
    """Somebody else may be at work: stop before the next effect."""


@dataclass(slots=True)
class HeldLease:
    name: str
    token: str
    ended: threading.Event = field(default_factory=threading.Event)

    def confirm(self) -> None:
        """Renew now. Raises LeaseLost when the lease has gone to somebody else."""
        if not leases.renew(self.name, self.token, now=clock.database_now(), ttl=TTL):
            raise LeaseLost(self.name)


@contextmanager
def held(name: str) -> Iterator[HeldLease | None]:
    """Take the lease and keep it until the end of the block; None when somebody else has it."""
    token = leases.take(name, now=clock.database_now(), ttl=TTL)
    if token is None:
        yield None
        return
    lease = HeldLease(name, token)
    keeper = threading.Thread(target=_keep, args=(lease,), name=f"lease {name}", daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        lease.ended.set()
        keeper.join()
        leases.release(name, token)


def _renew(lease: HeldLease) -> None:
    """Renew; a database that does not answer now may answer the next time, well before the lease runs out."""
    try:
        lease.confirm()
    except DatabaseError as error:
        log.warning("lease_not_renewed", name=lease.name, error=type(error).__name__)


def _keep(lease: HeldLease) -> None:
    try:
        while not lease.ended.wait(RENEW_EVERY):
            close_old_connections()
            _renew(lease)
    except LeaseLost:
        pass  # confirmed again, and noticed, before the effect
    finally:
        connection.close()
