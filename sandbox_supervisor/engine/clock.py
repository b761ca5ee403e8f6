"""The two clocks of a sandbox: an instant that counts sleep and is compared, and a label that never is."""

import time
from datetime import UTC, datetime

from sandbox_supervisor.graph.facts import Now


def instant() -> float:
    """Give seconds of ``CLOCK_BOOTTIME``."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def label() -> str:
    """Give the wall time as RFC 3339 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now() -> Now:
    """Give both at once."""
    return Now(instant=instant(), at=label())
