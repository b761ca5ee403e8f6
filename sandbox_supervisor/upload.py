"""Send something large in chunks; the receiver says how far it has come, and that is where the sender goes on."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import urlencode

CHUNK = 1024 * 1024
STUCK = 8  # answers in a row that bring the offset no further

Transfer = Callable[[str, bytes], Awaitable[dict[str, Any]]]  # target with query, chunk → {offset, complete?}


class Stuck(Exception):
    """The receiver keeps naming an offset that leads nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Bytes in memory or in a file that does not change."""

    content: bytes | Path
    size: int

    @classmethod
    def of(cls, content: bytes | Path) -> Self:
        return cls(content=content, size=len(content) if isinstance(content, bytes) else content.stat().st_size)

    def read(self, offset: int) -> bytes:
        with self._open() as file:
            file.seek(offset)
            return file.read(CHUNK)

    def digest(self) -> str:
        with self._open() as file:
            return "sha256:" + file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]

    def _open(self) -> BinaryIO:
        return io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")


class Uploader:
    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer

    async def send(self, target: str, source: Source, *, start: int = 0, **parameters: str) -> None:
        """Send until the receiver has everything. Raises Stuck, and whatever ``transfer`` raises."""
        offset, repeats = start, 0
        while True:
            query = urlencode({"offset": offset, "size": source.size, **parameters})
            chunk = await asyncio.to_thread(source.read, offset)
            said = await self._transfer(f"{target}?{query}", chunk)
            reached = _offset(said, source.size)
            if said.get("complete") is True or ("complete" not in said and reached == source.size):
                return
            repeats = 0 if reached > offset else repeats + 1
            if repeats >= STUCK:
                raise Stuck(f"the receiver stays at byte {reached} of {source.size}")
            offset = reached


def _offset(said: dict[str, Any], size: int) -> int:
    offset = said.get("offset")
    if not isinstance(offset, int) or not 0 <= offset <= size:
        raise Stuck("the receiver names an offset outside the content")
    return offset
