"""The one clock of decisions: the database's. Replaceable, so that nothing ever sleeps for time to pass."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from django.db import connection

JUMP = timedelta(minutes=10)
_READ = {
    "sqlite": "SELECT strftime('%Y-%m-%dT%H:%M:%f', 'now')",
    "postgresql": "SELECT clock_timestamp()",
}


def _ask_the_database() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute(_READ[connection.vendor])
        value = cursor.fetchone()[0]
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


_source: Callable[[], datetime] = _ask_the_database


def database_now() -> datetime:
    """Give the moment on the database clock, UTC; inside a transaction as well, where it goes on."""
    return _source()


@contextmanager
def reading(source: Callable[[], datetime]) -> Iterator[None]:
    """Let ``source`` be the clock of this process for a while."""
    global _source  # noqa: PLW0603 - the one replaceable clock
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before


class JumpGuard:
    """Notice that the database clock jumped against this process' monotonic one.

    After a jump one confirming look is needed before ``trusted`` is said again.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last: tuple[datetime, float] | None = None

    def trusted(self, now: datetime) -> bool:
        """Say whether ``now`` follows from the look before; the first look is trusted."""
        before, instant = self._last, self._monotonic()
        self._last = (now, instant)
        if before is None:
            return True
        elapsed = timedelta(seconds=instant - before[1])
        return abs((now - before[0]) - elapsed) <= JUMP
