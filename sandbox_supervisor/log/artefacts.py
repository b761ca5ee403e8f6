"""Files by their content: each stored once, whole or not at all."""

import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from sandbox_supervisor.log import crashpoints
from sandbox_supervisor.log.crashpoints import Point

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_TEMPORARY = ".incoming-"
CHUNK = 1024 * 1024


class TooLarge(Exception):
    """The file is bigger than what is left of the quota; nothing was stored."""


class WrongDigest(Exception):
    """The bytes are not the ones that were announced; nothing was stored."""


class Incoming:
    """One file on its way in. ``commit`` or ``abort`` ends it."""

    def __init__(self, folder: Path, limit: int | None) -> None:
        self._folder = folder
        self._limit = limit
        self._file, self._path = tempfile.mkstemp(prefix=_TEMPORARY, dir=folder)
        self._hash = sha256()
        self.size = 0

    def write(self, chunk: bytes) -> None:
        """Add bytes. Raises TooLarge, OSError; then ``abort`` is due."""
        self.size += len(chunk)
        if self._limit is not None and self.size > self._limit:
            raise TooLarge(f"more than {self._limit} bytes")
        self._hash.update(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(self._file, view) :]

    def commit(self, expected: str | None = None) -> str:
        """Make the file durable under its digest and give that. Raises WrongDigest; then nothing was stored."""
        digest = "sha256:" + self._hash.hexdigest()
        if expected is not None and digest != expected:
            self.abort()
            raise WrongDigest(f"announced {expected}, got {digest}")
        os.fsync(self._file)
        os.close(self._file)
        self._file = -1
        crashpoints.hit(Point.ARTEFACT_WRITTEN)
        Path(self._path).rename(self._folder / digest.removeprefix("sha256:"))
        crashpoints.hit(Point.ARTEFACT_RENAMED)
        _sync_folder(self._folder)
        return digest

    def abort(self) -> None:
        """Forget it. Repeating is safe."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with suppress(FileNotFoundError):
                Path(self._path).unlink()


class ArtefactStore:
    """The folder of all artefacts. Names are the hex of their sha-256."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        for leftover in folder.glob(f"{_TEMPORARY}*"):
            leftover.unlink(missing_ok=True)

    def incoming(self, limit: int | None = None) -> Incoming:
        """Begin a file of at most ``limit`` bytes."""
        return Incoming(self._folder, limit)

    async def store(
        self, chunks: AsyncIterator[bytes], *, expected: str | None = None, limit: int | None = None
    ) -> tuple[str, int]:
        """Take a file in; give digest and size. Raises TooLarge, WrongDigest, OSError; then nothing was stored."""
        incoming = self.incoming(limit)
        try:
            async for chunk in chunks:
                incoming.write(chunk)
            return incoming.commit(expected), incoming.size
        finally:
            incoming.abort()

    def has(self, digest: str) -> bool:
        return self.path(digest).is_file()

    def path(self, digest: str) -> Path:
        """Give where a digest's file is (or would be). Raises FileNotFoundError for what is no digest."""
        match = _DIGEST.fullmatch(digest)
        if match is None:
            raise FileNotFoundError(digest)
        return self._folder / match[1]

    def read(self, digest: str, offset: int, length: int) -> tuple[bytes, int]:
        """Read at most 1 MiB; give the bytes and the file's whole size. Raises FileNotFoundError."""
        file = os.open(self.path(digest), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.pread(file, min(max(0, length), CHUNK), max(0, offset)), os.fstat(file).st_size
        finally:
            os.close(file)

    def used(self) -> int:
        """Give the bytes of all artefacts."""
        return sum(entry.stat().st_size for entry in os.scandir(self._folder))


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
