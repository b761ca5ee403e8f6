"""The runner's end of the line to a driver host: what comes from there is as hostile as the agent itself."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

from sandbox_supervisor.runner import claims, wire
from sandbox_supervisor.runner.link import SessionEventKind

HEADER_LIMIT = 256 * 1024
PAYLOAD_LIMIT = 64 * 1024
SESSION_LIMIT = 256 * 1024 * 1024  # bytes that a session may report; output has a cap of its own where it is kept


class HostLine:
    """``report`` is what the host said about the end; ``broken`` why it was listened to no longer."""

    def __init__(self, sock: socket.socket, *, limit: int = SESSION_LIMIT) -> None:
        self._sock = sock
        self._left = limit
        self._line: wire.Line | None = None
        self._reader: asyncio.StreamReader | None = None
        self.report: dict[str, Any] | None = None
        self.broken: str | None = None

    async def open(self, job: dict[str, Any]) -> None:
        self._reader, writer = await asyncio.open_connection(sock=self._sock)
        self._line = wire.Line(writer)
        await self._line.send({"t": "job", "job": job})

    async def send(self, word: dict[str, Any]) -> None:
        """Raises ConnectionError when the host does not listen yet or any more."""
        if self._line is None:
            raise ConnectionResetError("the host does not listen yet")
        await self._line.send(word)

    async def events(self) -> AsyncIterator[tuple[SessionEventKind, dict[str, Any], bytes]]:
        """Everything the host reports, checked, until its end. Raises WireError, Nonsense."""
        assert self._reader is not None  # noqa: S101  # open() comes first
        while frame := await wire.read(self._reader, header_limit=HEADER_LIMIT, payload_limit=PAYLOAD_LIMIT):
            if frame.header.get("t") == "end":
                self.report = claims.check_report(frame.header.get("report"))
            elif self.report is None:
                self._count(frame)
                yield claims.check_event(frame)

    def _count(self, frame: wire.Frame) -> None:
        """Charge a report to the session, lest an agent that never ends fills the disk."""
        if frame.header.get("kind") != SessionEventKind.OUTPUT:
            self._left -= frame.size
        if self._left < 0:
            raise claims.Nonsense("more was reported than a session may hold")

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        else:
            self._sock.close()
