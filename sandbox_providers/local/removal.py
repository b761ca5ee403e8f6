"""Remove a folder that hostile programs have filled: no link is followed, no depth or mode is in the way."""

import os
import stat
from pathlib import Path

MOST_TOLD = 20


def remove(path: Path) -> list[str]:
    """Remove ``path`` and all below it; give what could not be removed and why, at most ``MOST_TOLD``. Safe to repeat.

    Folders found on the way are first moved to the top, so that the depth of the tree costs neither stack nor
    descriptors; nothing is ever opened by a path with more than one unknown part.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{path.name}: {error.strerror}"]
    try:
        complaints = _empty(top)
    finally:
        os.close(top)
    if complaints:
        return complaints
    try:
        path.rmdir()
    except OSError as error:
        return [f"{path.name}: {error.strerror}"]
    return []


def _empty(top: int) -> list[str]:
    """Empty the folder ``top``: its own entries, then one level of each folder in it, until none is left."""
    complaints: list[str] = []
    counter = 0
    hopeless: set[str] = set()
    while names := [name for name in os.listdir(top) if name not in hopeless]:
        for name in names:
            try:
                if _is_folder(top, name):
                    counter = _lift(top, name, counter)
                    os.rmdir(name, dir_fd=top)
                else:
                    os.unlink(name, dir_fd=top)
            except OSError as error:
                hopeless.add(name)
                complaints.append(f"{name}: {error.strerror}")
                if len(complaints) >= MOST_TOLD:
                    return complaints
    return complaints


def _is_folder(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _lift(top: int, name: str, counter: int) -> int:
    """Unlink what is in the folder ``name`` and move its sub-folders next to it. Gives the next free number."""
    handle = _open_folder(top, name)
    try:
        for entry in os.listdir(handle):  # noqa: PTH208  # a descriptor, not a path
            if not _is_folder(handle, entry):
                os.unlink(entry, dir_fd=handle)
                continue
            os.close(_open_folder(handle, entry))  # moving it needs the right to write in it
            counter += 1
            os.rename(entry, f".lifted-{os.urandom(8).hex()}-{counter}", src_dir_fd=handle, dst_dir_fd=top)
    finally:
        os.close(handle)
    return counter


def _open_folder(parent: int, name: str) -> int:
    """Open a folder, never a link to one, after giving its owner every right in it."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        Path(f"/proc/self/fd/{handle}").chmod(0o700)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    finally:
        os.close(handle)
