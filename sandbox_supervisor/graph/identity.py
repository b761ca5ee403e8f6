"""Which process tree an attempt is. Apart from the rows, so that a runner need not load these to start."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which process tree an attempt is: the shim's pid is worth nothing without the other two."""

    pid: int
    start_time: int  # clock ticks after boot, field 22 of /proc/<pid>/stat
    boot_id: str
