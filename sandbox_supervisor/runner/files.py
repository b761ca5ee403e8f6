"""Read an attempt's files without ever following a link: whoever wrote them may have meant to lead elsewhere."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox_supervisor.runner.link import RunnerRefused

LIST_LIMIT = 10_000
PATH_LIMIT = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def parts_of(path: str) -> list[str]:
    """Split a relative path. Raises RunnerRefused for anything that could lead out."""
    if len(path) > PATH_LIMIT or "\0" in path or path.startswith("/"):
        raise RunnerRefused("bad_path", "A path is relative, without NUL, and at most 4096 characters.")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise RunnerRefused("bad_path", "A path has no '..' in it.")
    return parts


@contextmanager
def opened_folder(root: Path, parts: list[str]) -> Iterator[int]:
    """Open a folder below ``root`` one step at a time, so that no step is a link. Raises RunnerRefused."""
    fd = os.open(root, _FOLDER)
    try:
        for part in parts:
            below = _step(part, _FOLDER, fd, "/".join(parts))
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_file(root: Path, path: str) -> Iterator[int]:
    """Open a regular file below ``root``. Raises RunnerRefused for anything else, without blocking."""
    *folders, name = parts_of(path) or [""]
    with opened_folder(root, folders) as folder:
        if not name:
            raise RunnerRefused("not_a_file", "The path names the folder itself.")
        fd = _step(name, _FILE, folder, path)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise RunnerRefused("not_a_file", f"{path} is not a regular file")
        yield fd
    finally:
        os.close(fd)


def _step(name: str, flags: int, folder: int, path: str) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise RunnerRefused("not_found", f"{path} does not exist") from None
    except OSError:
        raise RunnerRefused("refused", f"{path} is a link, a device, or cannot be read") from None


def list_folder(root: Path, path: str) -> list[dict[str, Any]]:
    """Give the entries of one folder, sorted by name; at most 10 000."""
    with opened_folder(root, parts_of(path)) as folder:
        names = []
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= LIST_LIMIT:
                    break
        return [_entry(name, folder) for name in sorted(names)]


def _entry(name: str, folder: int) -> dict[str, Any]:
    shown = os.fsencode(name).decode("utf-8", "replace")
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return {"name": shown, "type": "other", "size": 0, "executable": False}
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    size = found.st_size if kind == "file" else 0
    return {"name": shown, "type": kind, "size": size, "executable": kind == "file" and bool(found.st_mode & 0o100)}


def read(root: Path, path: str, offset: int, length: int) -> tuple[bytes, int]:
    """Give bytes and the whole size of a regular file."""
    with opened_file(root, path) as fd:
        size = os.fstat(fd).st_size
        data = os.pread(fd, max(0, length), max(0, offset))
    return data, size
