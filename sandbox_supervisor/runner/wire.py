"""Frames of the ``ctl`` socket and the driver host's line: a JSON header and bytes, both length-prefixed and capped."""

import asyncio
import json
import struct
from dataclasses import dataclass, field
from typing import Any

import msgspec

_LENGTHS = struct.Struct(">II")
CALL_LIMIT = 4 * 1024 * 1024  # header towards the runner: prompts, playbooks and schemas travel there
REPORT_LIMIT = 1024 * 1024  # header from the runner
PAYLOAD_LIMIT = 1024 * 1024


class WireError(Exception):
    """The other end broke the format. The connection is worth nothing any more."""


@dataclass(frozen=True, slots=True)
class Frame:
    """``size`` is what header and payload took on the wire."""

    header: dict[str, Any]
    payload: bytes = b""
    size: int = field(default=0, compare=False)


def pack(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """Give the bytes of one frame. Names that are no UTF-8 get replacement characters."""
    try:
        head = msgspec.json.encode(header)
    except UnicodeEncodeError:
        head = json.dumps(msgspec.to_builtins(header), ensure_ascii=False).encode("utf-8", "replace")
    return _LENGTHS.pack(len(head), len(payload)) + head + payload


async def read(reader: asyncio.StreamReader, *, header_limit: int, payload_limit: int = PAYLOAD_LIMIT) -> Frame | None:
    """Read one frame; None when the stream ends between two. Never holds more than the limits. Raises WireError."""
    try:
        lengths = await reader.readexactly(_LENGTHS.size)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise WireError("the stream ended inside a frame") from None
        return None
    head, body = _LENGTHS.unpack(lengths)
    if head > header_limit or body > payload_limit:
        raise WireError(f"a frame of {head} + {body} bytes is over the limit")
    try:
        header = msgspec.json.decode(await reader.readexactly(head))
        payload = await reader.readexactly(body) if body else b""
    except asyncio.IncompleteReadError:
        raise WireError("the stream ended inside a frame") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise WireError("a frame's header is not JSON") from None
    if not isinstance(header, dict):
        raise WireError("a frame's header is not an object")
    return Frame(header, payload, head + body)


class Line:
    """One connection's writing end. Frames of concurrent senders never mix; a slow reader makes senders wait."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._lock = asyncio.Lock()

    async def send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        """Write one frame and wait until it has left the buffer. Raises ConnectionError."""
        async with self._lock:
            if self._writer.is_closing():
                raise ConnectionResetError("the line is closed")
            self._writer.write(pack(header, payload))
            await self._writer.drain()

    def close(self) -> None:
        """Close at once; what is still buffered is lost."""
        self._writer.transport.abort()
