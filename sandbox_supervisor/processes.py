"""Own process trees: adopt orphans, find descendants, end them until none is left. Linux."""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandbox_supervisor.protocol.identity import Process, stat_fields

_SET_PDEATHSIG, _SET_DUMPABLE, _SET_CHILD_SUBREAPER = 1, 4, 36
_PAUSE = 0.02


def become_subreaper() -> None:
    """Make every orphan below this process its child, whatever session it has fled to."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def forbid_dump() -> None:
    """Close this process' memory, environment and descriptors to others of the same user. Undone by exec."""
    _prctl(_SET_DUMPABLE, 0)


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send ``number`` to this process when its parent ends. Kept across exec, not across fork."""
    _prctl(_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def descendants(pid: int, *, spare: int | None = None) -> list[Process]:
    """Give every running process (no zombie) below ``pid``, nearest first, but not ``spare`` and its tree."""
    children = _children_by_parent()
    found: list[Process] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in children.get(parent, ()) if child != spare]
        found += [process for child in level if (process := Process.of(child))]
    return found


def _children_by_parent() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for pid in running_pids():
        if fields := stat_fields(pid):
            children.setdefault(int(fields[1]), []).append(pid)
    return children


def running_pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def kill_descendants(pid: int, timeout: float, *, spare: int | None = None) -> bool:
    """Kill everything below ``pid`` again and again until nothing is left; False if that took over ``timeout`` seconds.

    Reaps the children of the calling process on the way. A tree that keeps forking is caught up with, because each
    round takes the newest ones as well.
    """
    ends_at = time.monotonic() + timeout
    while True:
        reap()
        left = descendants(pid, spare=spare)
        if not left:
            return True
        if time.monotonic() > ends_at:
            return False
        for process in left:
            process.signal(signal.SIGKILL)
        time.sleep(_PAUSE)


def reap() -> dict[int, int]:
    """Collect every ended child of this process: pid → exit code, or minus the signal that ended it."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended
