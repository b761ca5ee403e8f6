"""How much disk a folder takes, and how much memory processes do. Linux."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

ENTRIES_LIMIT = 1_000_000  # a folder of more is counted as far as this
_BREATH_EVERY, _BREATH = 1000, 0.002  # entries; seconds in which other threads go first


def disk_of(folder: Path, *, without: frozenset[str] = frozenset()) -> int:
    """Add up the blocks of everything below a folder, in bytes, but not of ``without``, which are names right in it.

    A file with several names counts once; no link is followed and no other file system entered. What vanishes
    meanwhile, or cannot be read, does not count.
    """
    total = seen = 0
    many_names: set[int] = set()
    device = folder.stat().st_dev
    waiting = [entry for entry in _entries(str(folder), ENTRIES_LIMIT) if entry.name not in without]
    while waiting and seen < ENTRIES_LIMIT:
        entry = waiting.pop()
        seen += 1
        if seen % _BREATH_EVERY == 0:
            time.sleep(_BREATH)
        with suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            if found.st_dev != device or found.st_ino in many_names:
                continue
            total += found.st_blocks * 512
            if entry.is_dir(follow_symlinks=False):
                waiting += _entries(entry.path, ENTRIES_LIMIT - seen - len(waiting))
            elif found.st_nlink > 1:
                many_names.add(found.st_ino)
    return total


def _entries(folder: str, limit: int) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, max(0, limit)))
    except OSError:
        return []


def memory_of(pids: Iterable[int]) -> int:
    """Add up the resident memory, in bytes, that each process has for itself: pages of files and shared memory, which
    processes have in common, do not count."""
    total = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            words = Path(f"/proc/{pid}/statm").read_text("ascii").split()
            total += max(0, int(words[1]) - int(words[2]))
    return total * os.sysconf("SC_PAGE_SIZE")
