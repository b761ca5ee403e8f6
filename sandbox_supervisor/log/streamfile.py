"""A file that keeps the beginning and the end of a stream of any length."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Slice:
    """``offset`` is where ``data`` begins in the stream, ``size`` what the stream produced, ``dropped`` what lies
    between the first ``head`` bytes and the tail and is gone."""

    data: bytes
    offset: int
    size: int
    dropped: int
    head: int


class StreamFile:
    """The first ``head`` bytes stay where they are; what follows goes round in the rest of ``cap``.

    How much was produced is the file's size until the cap is reached, afterwards it stands in a second file beside it.
    """

    def __init__(self, path: Path, *, head: int, cap: int, readonly: bool = False) -> None:
        self.path = path
        self._head = head
        self._cap = cap
        self._ring = cap - head
        flags = os.O_RDONLY if readonly else os.O_RDWR | os.O_CREAT
        self._file = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._mark = path.with_name(path.name + ".produced")
        self.produced = max(os.fstat(self._file).st_size, self._read_mark())

    @property
    def dropped(self) -> int:
        """Bytes that the cap has cost so far."""
        return max(0, self.produced - self._cap)

    def append(self, data: bytes) -> None:
        """Store bytes at the end. Raises OSError; then a repetition stores them once."""
        done = 0
        while done < len(data):
            place, room = self._room(self.produced + done)
            piece = data[done : done + room]
            _write_all(self._file, piece, place)
            done += len(piece)
        self.produced += len(data)
        if self.produced > self._cap:
            self._write_mark()

    def _room(self, offset: int) -> tuple[int, int]:
        """Give the place in the file of a stream offset, and how many bytes follow there without a jump."""
        place = self._place(offset)
        return place, (self._head if offset < self._head else self._cap) - place

    def _place(self, offset: int) -> int:
        if offset < self._head:
            return offset
        return self._head + (offset - self._head) % self._ring

    def read(self, offset: int, length: int) -> Slice:
        """Read up to ``length`` bytes; a read that begins in the dropped range begins after it."""
        offset = max(0, min(offset, self.produced))
        if self.dropped and self._head <= offset < self._head + self.dropped:
            offset = self._head + self.dropped
        end = min(offset + length, self.produced)
        if self.dropped and offset < self._head:
            end = min(end, self._head)
        pieces = []
        at = offset
        while at < end:
            place, room = self._room(at)
            piece = os.pread(self._file, min(room, end - at), place)
            if not piece:
                break
            pieces.append(piece)
            at += len(piece)
        return Slice(b"".join(pieces), offset, self.produced, self.dropped, self._head)

    def _read_mark(self) -> int:
        try:
            return int(self._mark.read_text() or "0")
        except (FileNotFoundError, ValueError):
            return 0

    def _write_mark(self) -> None:
        mark = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(mark, str(self.produced).encode().rjust(20), 0)
        finally:
            os.close(mark)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _write_all(file: int, data: bytes, place: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, place)
        view, place = view[done:], place + done
