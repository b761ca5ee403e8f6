"""The anchor: the newest durable head, outside the database, so that a database gone back in time is noticed.

It also counts the openings: a log that is damaged or without space for a commit must not be taken for its earlier life.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from sandbox_supervisor.log.errors import StorageCorrupt
from sandbox_supervisor.protocol import codec

_SIZE = 512  # one sector: an overwrite is whole or not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where both chains stand; the chains in hex. ``boot`` counts the openings of the log."""

    epoch: str
    seq: int
    chain: str
    change: int
    change_chain: str
    boot: int


class Anchor:
    """One file, overwritten in place and synced. Once it exists, writing needs no space."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> Position | None:
        """Give what was written last, None if nothing ever was. Raises StorageCorrupt for anything else."""
        data = os.pread(self._file, _SIZE + 1, 0)
        if not data:
            return None
        check, _, body = data.rstrip(b" ").partition(b" ")
        if len(data) != _SIZE or check != _check(body):
            raise StorageCorrupt("the anchor is damaged")
        try:
            return codec.decode(body, Position)
        except codec.Malformed:
            raise StorageCorrupt("the anchor is damaged") from None

    def write(self, position: Position) -> None:
        """Store the position durably."""
        body = codec.encode(position)
        os.pwrite(self._file, (_check(body) + b" " + body).ljust(_SIZE), 0)
        os.fdatasync(self._file)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._file)


def _check(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).hexdigest().encode()
