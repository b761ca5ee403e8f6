"""End what an earlier runner may have left: by identity, by our mark in the environment, by orphanhood."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.runner import shim
from sandbox_supervisor.runner.link import RunnerRefused

PATIENCE = 5.0  # seconds that a shim gets to empty its tree itself
GIVE_UP = 60.0
_PAUSE = 0.02


def alive(identity: Identity) -> bool:
    """Say whether exactly this process runs; a pid of another boot or namespace never matches."""
    if identity.boot_id != shim.boot_id():
        return False
    seen = shim.stat(identity.pid)
    return seen is not None and seen[1] == identity.start_time


def end(identities: Iterable[Identity], work: Path, known: frozenset[int]) -> None:
    """Kill what is left of these trees and all that carries the mark of ``work``, except trees of ``known`` shims.

    Returns when nothing is left. Raises RunnerRefused after a minute of trying.
    """
    left = [identity for identity in identities if identity.pid not in known and alive(identity)]
    for identity in left:
        shim.send(identity.pid, identity.start_time, signal.SIGTERM)  # a shim empties its own tree, with proof
    ends_at = time.monotonic() + PATIENCE
    while any(alive(identity) for identity in left) and time.monotonic() < ends_at:
        time.sleep(_PAUSE)
    ends_at = time.monotonic() + GIVE_UP
    while remaining := [*_trees(left), *marked(work, known)]:
        if time.monotonic() > ends_at:
            raise RunnerRefused("not_empty", f"{len(remaining)} processes of an earlier runner cannot be ended")
        for pid, started in remaining:
            shim.send(pid, started, signal.SIGKILL)
        time.sleep(_PAUSE)


def _trees(identities: list[Identity]) -> list[tuple[int, int]]:
    roots = [identity for identity in identities if alive(identity)]
    below = [(pid, started) for root in roots for pid, started, _ in shim.descendants(root.pid)]
    return [*below, *((root.pid, root.start_time) for root in roots)]


def marked(work: Path, known: frozenset[int]) -> list[tuple[int, int]]:
    """Find processes whose environment names ``work`` and that belong to no living tree of ours.

    The last resort for what lost its shim while the runner was dead, too; one that cleared its environment escapes it
    where there is no PID namespace.
    """
    mark = b"CAISSON_WORK=" + os.fsencode(work) + b"\0"
    ours = {pid for root in known for pid, _, _ in shim.descendants(root)}
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) in ours or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if mark in Path(entry.path, "environ").read_bytes() + b"\0" and (seen := shim.stat(int(entry.name))):
                found.append((int(entry.name), seen[1]))
    return found
