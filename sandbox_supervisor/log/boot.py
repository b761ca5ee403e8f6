"""What is read and counted when a log is opened."""

import secrets
import sqlite3
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sandbox_supervisor.log import schema
from sandbox_supervisor.log.errors import StorageCorrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the opening of a log found. ``alive_until`` is an instant of the boot in which the last commit was made."""

    epoch: str
    boot: int
    alive_until: float | None
    same_boot: bool


def instant() -> float:
    """Give the present instant: seconds of CLOCK_BOOTTIME."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def boot_id() -> str:
    """Give what the kernel calls this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_or_create(connection: sqlite3.Connection) -> dict[str, str]:
    """Give the meta values of a log, made now if there is none. Raises StorageCorrupt for another format."""
    schema.create(connection)
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    if not meta:
        meta = {"format": str(schema.FORMAT), "epoch": secrets.token_hex(16), "boot": "0"}
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        connection.execute("COMMIT")
    if meta.get("format") != str(schema.FORMAT) or not {"epoch", "boot"} <= meta.keys():
        raise StorageCorrupt("the log's own description is damaged or of another format")
    return meta


def facts(meta: dict[str, str], *, counted: int) -> Facts:
    """Read the facts out of the meta values; ``counted`` is the last boot that is known of. Raises StorageCorrupt."""
    try:
        alive = float(meta["alive"]) if "alive" in meta else None
        before = int(meta["boot"])
    except ValueError:
        raise StorageCorrupt("the log's own description is damaged") from None
    same = meta.get("machine_boot", boot_id()) == boot_id()
    return Facts(epoch=meta["epoch"], boot=max(before, counted) + 1, alive_until=alive, same_boot=same)


def write(connection: sqlite3.Connection, found: Facts) -> None:
    """Write down that there is one more boot, durably. Raises sqlite3.Error; then nothing was written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        store(connection, {"boot": str(found.boot)})
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def sign_of_life() -> dict[str, str]:
    """Give the meta values by which the next opening knows how long this one lived."""
    return {"alive": repr(instant()), "machine_boot": boot_id()}


def store(connection: sqlite3.Connection, values: dict[str, str]) -> None:
    """Set meta values, inside the caller's transaction."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
