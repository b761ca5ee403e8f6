"""The runner's end of the line to a driver host: what comes from there is as hostile as the agent itself."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

from sandbox_supervisor.runner import claims, wire
from sandbox_supervisor.runner.link import SessionEventKind

HEADER_LIMIT = 256 * 1024
PAYLOAD_LIMIT = 64 * 1024


class HostLine:
    """``report`` is what the host said about the end; ``broken`` why it was not believed."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
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
                yield claims.check_event(frame)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        else:
            self._sock.close()
