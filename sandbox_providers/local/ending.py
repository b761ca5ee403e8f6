"""Stop every process of a sandbox, by identity only, and prove it; keep its files."""

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from sandbox_providers.contract import Termination, Unavailable
from sandbox_providers.local.layout import Layout
from sandbox_providers.local.looking import Sight, look
from sandbox_supervisor.protocol import folder, handover
from sandbox_supervisor.protocol.identity import Process

_PAUSE = 0.05
_STARTING = 10.0  # seconds for a launcher that is just starting to say who it is
_AFTER_KILL = 5.0


def terminate(layout: Layout, sight: Sight, *, reason: str, patience: float) -> Termination:
    """Forbid every start, ask the launcher to stop, after ``patience`` seconds kill. To be called with the name held.

    Patience counts from the first call; later calls go on where that one stopped.
    """
    place = layout.place(sight.order.name)
    handover.write_once(place / folder.TERMINATED, folder.Terminated(reason=reason))
    sight = _settled(layout, sight)
    asked_at = (place / folder.TERMINATED).stat().st_mtime
    left = max(0.0, patience - max(0.0, time.time() - asked_at))
    if sight.record and sight.record.launcher.signal(signal.SIGTERM) and _is_over(layout, sight, left):
        return Termination.CONFIRMED
    if _kill(layout, sight):
        return Termination.CONFIRMED
    return Termination.REQUESTED


def leftovers(sight: Sight) -> list[Process]:
    """Give every process of the sandbox that runs: those known by name and those that carry its mark."""
    known = sight.processes()
    pids = {process.pid for process in known}
    return known + [process for process in marked(sight.order.uid) if process.pid not in pids]


def _settled(layout: Layout, sight: Sight) -> Sight:
    """Wait for a launcher that has the lock but has not yet said who it is: it must not slip through."""
    place = layout.place(sight.order.name)
    ends_at = time.monotonic() + _STARTING
    while sight.record is None and _is_locked(place / folder.LOCK):
        if time.monotonic() > ends_at:
            raise Unavailable("launcher_slow", f"The launcher of {sight.order.name} has not said who it is yet.")
        time.sleep(_PAUSE)
        sight = look(layout, sight.order.name) or sight
    return look(layout, sight.order.name) or sight


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _is_over(layout: Layout, sight: Sight, seconds: float) -> bool:
    """Wait until nothing of the sandbox runs."""
    ends_at = time.monotonic() + seconds
    while leftovers(look(layout, sight.order.name) or sight):
        if time.monotonic() > ends_at:
            return False
        time.sleep(_PAUSE)
    return True


def _kill(layout: Layout, sight: Sight) -> bool:
    """Kill the launcher; its guard ends the rest. Without a guard everything that is left is killed from here."""
    ends_at = time.monotonic() + _AFTER_KILL
    while True:
        sight = look(layout, sight.order.name) or sight
        left = leftovers(sight)
        if not left:
            return True
        if time.monotonic() > ends_at:
            return False
        guard = sight.record.guard if sight.record else None
        for process in left:
            if process != guard:  # it ends by itself, after the rest
                process.signal(signal.SIGKILL)
        time.sleep(_PAUSE)


def marked(uid: str) -> list[Process]:
    """Find processes by the mark in their environment, as far as this user may read it."""
    mark = f"{folder.MARK}={uid}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0") and (process := Process.of(int(entry.name))):
                    found.append(process)
    return found
