"""The driver host's end of the line to the runner: session events up, answers down."""

import asyncio
from typing import Any

from sandbox_supervisor.drivers.questions import Question
from sandbox_supervisor.drivers.updates import fitted
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.runner import wire
from sandbox_supervisor.runner.link import SessionEventKind

OUTPUT_PIECE = 64 * 1024


class Uplink:
    """Every send waits until the runner takes it: a supervisor that reads slowly slows the agent down."""

    def __init__(self, line: wire.Line) -> None:
        self._line = line
        self._asked = 0
        self._open: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._refusing = False

    async def event(self, kind: EventKind, data: dict[str, Any]) -> None:
        await self._send(SessionEventKind.EVENT, {"kind": kind, "data": fitted(data)})

    async def output(self, stream: str, data: bytes) -> None:
        for at in range(0, len(data), OUTPUT_PIECE):
            await self._send(SessionEventKind.OUTPUT, {"stream": stream}, data[at : at + OUTPUT_PIECE])

    async def usage(self, totals: dict[str, float]) -> None:
        await self._send(SessionEventKind.USAGE, dict(totals))

    async def ask(self, question: Question) -> dict[str, Any]:
        """Put a question to a person and wait, as long as it takes, for the answer or the cancel."""
        if self._refusing:
            return {"cancelled": True}
        self._asked += 1
        request_id = f"r{self._asked}"
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[request_id] = answer
        try:
            await self._send(SessionEventKind.ASK, question.asked(request_id))
            return await answer
        finally:
            del self._open[request_id]

    def answer(self, request_id: str, answer: dict[str, Any]) -> None:
        """Hand an answer to whoever asked; one that nobody waits for is ignored."""
        if (future := self._open.get(request_id)) and not future.done():
            future.set_result(answer)

    def cancel_questions(self) -> None:
        """Answer all open questions, and those to come, with ``cancelled``."""
        self._refusing = True
        for future in self._open.values():
            if not future.done():
                future.set_result({"cancelled": True})

    async def end(self, report: dict[str, Any]) -> None:
        """Say how the session ended. Nothing is believed after that."""
        await self._line.send({"t": "end", "report": report})

    async def _send(self, kind: SessionEventKind, data: dict[str, Any], payload: bytes = b"") -> None:
        await self._line.send({"kind": kind, "data": data}, payload)
