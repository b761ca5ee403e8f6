"""The bytes between two events of a stream: gathered, then told as text or, when there are too many, described."""

import codecs
from hashlib import sha256
from typing import Any

EDGE = 2 * 1024  # bytes of head and tail in the description of a big piece


class Window:
    """Holds at most what an inline event may carry; of more it keeps digest, head and tail.

    A window ends between code points: up to three bytes of an unfinished one wait for the next window.
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._held = bytearray()

    @property
    def size(self) -> int:
        return len(self._held)

    def add(self, payload: bytes) -> None:
        self._held += payload

    def take(self, *, last: bool, inline: int) -> dict[str, Any] | None:
        """Give what the next event says, None when nothing has gathered."""
        piece = bytes(self._held if last else self._held[: whole(self._held)])
        if not piece:
            return None
        offset, self._offset = self._offset, self._offset + len(piece)
        del self._held[: len(piece)]
        told: dict[str, Any] = {"offset": offset, "length": len(piece)}
        if len(piece) <= inline:
            return {"text": piece.decode("utf-8", "replace"), **told}
        head = piece[: whole(piece[:EDGE])]
        tail = piece[-EDGE:]
        return {
            **told,
            "digest": "sha256:" + sha256(piece).hexdigest(),
            "head": head.decode("utf-8", "replace"),
            "tail": tail[starting(tail) :].decode("utf-8", "replace"),
        }


def whole(data: bytes | bytearray) -> int:
    """Give how many bytes end between code points: all, but for the beginning of one that may still be completed."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    waiting = len(decoder.getstate()[0])
    return len(data) - waiting


def starting(data: bytes) -> int:
    """Give how many bytes at the beginning belong to a code point that began before."""
    for at in range(min(3, len(data))):
        if data[at] & 0xC0 != 0x80:
            return at
    return 0
