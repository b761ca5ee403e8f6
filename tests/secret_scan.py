"""Look for values that nobody may come upon: in every spelling, in files, databases, Git objects, Redis, processes."""

import base64
import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Hits = set[tuple[str, str]]  # where, name of the secret


def spellings(value: str) -> set[bytes]:
    """Give a value as it would stand in a text, a URL, base64 at each alignment, hexadecimal, and what it is hex of."""
    found = {value.encode()}
    with suppress(ValueError):
        found.add(bytes.fromhex(value))
    for raw in list(found):
        found |= {raw.hex().encode(), raw.hex().upper().encode()}
        found |= {"".join(f"%{byte:{form}}" for byte in raw).encode() for form in ("02X", "02x")}
        for shift in range(3):
            first, last = -(-shift * 8 // 6), (shift + len(raw)) * 8 // 6  # what stands around it touches no other
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                found.add(encode(bytes(shift) + raw)[first:last])
    return found


class Scanner:
    """``hits`` collects where which secret was found."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._needles = {name: spellings(value) for name, value in secrets.items()}
        self.hits: Hits = set()
        self.looked_at = 0
        self._known: dict[Path, tuple[int, ...]] = {}  # files as they were when they were read

    def look(self, where: str, data: bytes) -> None:
        self.looked_at += 1
        for name, needles in self._needles.items():
            if any(needle in data for needle in needles):
                self.hits.add((where, name))

    def folder(self, top: Path) -> None:
        """Read every file below ``top``; databases also row by row, repositories also object by object."""
        for folder, names, files in os.walk(top):
            place = Path(folder)
            for name in (*names, *files):
                self.look(f"name {place.relative_to(top)}", os.fsencode(name))
            if "objects" in names and "HEAD" in files:
                self.look(str(place.relative_to(top)), _objects(place))
            for path in (place / name for name in files):
                self._file(path, str(path.relative_to(top)))

    def _file(self, path: Path, shown: str) -> None:
        try:
            facts = path.lstat()
            state = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
            if not stat.S_ISREG(facts.st_mode) or self._known.get(path) == state:
                return
            data = path.read_bytes()
        except FileNotFoundError:  # a temporary one of a process that runs
            return
        self._known[path] = state
        self.look(shown, data)
        if data.startswith(b"SQLite format 3\0"):
            for table, row in _rows(path):
                self.look(f"{shown} {table}", row)

    def processes(self) -> None:
        """Read arguments and environment of every process that lets itself be read."""
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                for part in ("cmdline", "environ"):
                    try:
                        data = (process / part).read_bytes()
                    except OSError:
                        continue
                    self.look(f"{part} of a process", data)

    def redis(self, socket: Path) -> None:
        import redis

        with closing(redis.Redis(unix_socket_path=str(socket))) as client:
            for key in client.scan_iter():
                self.look("redis key", key)
                self.look(f"redis {key!r}", client.dump(key) or b"")


def _rows(path: Path) -> Iterator[tuple[str, bytes]]:
    """Read a copy, because a supervisor keeps its own log locked."""
    for _ in range(100):
        with TemporaryDirectory() as aside:
            if _copy(path, Path(aside)):
                yield from _rows_of(Path(aside) / path.name)
                return
    raise AssertionError(f"{path} is written to all the time")


def _copy(database: Path, aside: Path) -> bool:
    """Copy a database and its write-ahead log; False when one was written to meanwhile: they may not fit together."""
    parts = (database, database.with_name(f"{database.name}-wal"))
    before = [_state(part) for part in parts]
    for part in parts:
        with suppress(FileNotFoundError):
            shutil.copy(part, aside)
    return before == [_state(part) for part in parts]


def _state(path: Path) -> tuple[int, ...] | None:
    """Say which file this is and when it was last written to."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _rows_of(path: Path) -> Iterator[tuple[str, bytes]]:
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in database.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 - a name out of the database itself
                yield table, b"\0".join(_bytes(value) for value in row)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _objects(repository: Path) -> bytes:
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "--git-dir", str(repository), "cat-file", "--batch-all-objects", "--batch"],
        capture_output=True,
        check=True,
    )
    return done.stdout
