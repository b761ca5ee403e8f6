"""Own process trees: adopt orphans, find descendants, end them until none is left. Linux."""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox_supervisor.protocol.identity import Process, boot_id, stat_fields

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


def follow_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """In a process just forked by ``parent``: end with it, at once if it ended before the kernel was asked to tell."""
    die_with_parent(number)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def descendants(pid: int, *, spare: int | None = None) -> list[Process]:
    """Give every running process (no zombie) below ``pid``, nearest first, but not ``spare`` and its tree."""
    boot = boot_id()
    return [
        Process(pid=below.pid, start_time=below.start_time, boot_id=boot)
        for below in _tree(pid, spare)
        if not below.is_zombie
    ]


def kill_descendants(timeout: float, *, spare: int | None = None) -> bool:
    """Kill and reap everything below this process until the kernel says that it has no child (but ``spare``).

    False if that took over ``timeout`` seconds. Whole process groups are killed, also by what is left of their dead
    members, because that alone catches a chain of processes each of which forks and ends at once. A chain that changes
    its group as well can escape for as long as it runs; only a PID namespace ends one for certain.
    """
    ends_at = time.monotonic() + timeout
    while True:
        _kill(_tree(os.getpid(), spare), spare)
        nothing_left = reap_all()
        if nothing_left or (spare is not None and not _tree(os.getpid(), spare)):
            return True
        if time.monotonic() > ends_at:
            return False
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


def reap_all() -> bool:
    """Collect every ended child; True if there is none left, running or ended: so nothing is below a subreaper."""
    reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


@dataclass(frozen=True, slots=True)
class _Below:
    pid: int
    parent: int
    group: int
    start_time: int
    is_zombie: bool


def _tree(root: int, spare: int | None) -> list[_Below]:
    """Give everything below ``root``, nearest first, as one pass over the process table saw it."""
    children: dict[int, list[_Below]] = {}
    for pid in sorted(_pids(), reverse=True):  # the newest first, before they have gone
        if pid != spare and (fields := stat_fields(pid)):
            below = _Below(pid, int(fields[1]), int(fields[2]), int(fields[19]), fields[0] in "ZXx")
            children.setdefault(below.parent, []).append(below)
    found: list[_Below] = []
    level = [root]
    while level:
        next_level = [below for parent in level for below in children.pop(parent, ())]
        found += next_level
        level = [below.pid for below in next_level]
    return found


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _kill(tree: list[_Below], spare: int | None) -> None:
    """Kill processes by identity, and their groups, which hold nothing but descendants, save those of our own few."""
    ours = {os.getpgrp(), os.getpgid(os.getppid()), 0} | ({os.getpgid(spare)} if spare and _exists(spare) else set())
    for group in {below.group for below in tree} - ours:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    boot = boot_id()
    for below in tree:
        if not below.is_zombie:
            with suppress(OSError):
                Process(pid=below.pid, start_time=below.start_time, boot_id=boot).signal(signal.SIGKILL)


def _exists(pid: int) -> bool:
    return stat_fields(pid) is not None
