"""Follow one attempt's session: bring what it does into the log in small batches, and its questions as requests."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from sandbox_supervisor.engine import clock
from sandbox_supervisor.engine.core import SPACE_LOOK, SPACE_PATIENCE, Engine
from sandbox_supervisor.graph.facts import Asked, Progress
from sandbox_supervisor.graph.rows import AttemptId, NewEvent, RequestRow
from sandbox_supervisor.log.space import NO_SPACE
from sandbox_supervisor.protocol.codec import is_deep
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.states import RequestKind, RequestState
from sandbox_supervisor.runner.link import RunnerLost, SessionEvent, SessionEventKind

LINGER = 0.1  # seconds for which an event may wait for company
BATCH_EVENTS = 64
MOST_USED = 1e15  # of anything that is counted
TEXT_LIMIT = 4096  # characters up to which pieces of one message become one event

logger = logging.getLogger(__name__)

_GROWING = frozenset({EventKind.SESSION_MESSAGE, EventKind.SESSION_THOUGHT})


@dataclass(slots=True)
class Impression:
    """What an agent was seen to do; an agent that did nothing has failed."""

    spoke: bool = False
    acted: bool = False


class Follower:
    """Reads a session to its end. Slow commits slow the process down; nothing is dropped here."""

    def __init__(self, engine: Engine, attempt: AttemptId) -> None:
        self._engine = engine
        self._attempt = attempt
        self._batch: list[NewEvent] = []
        self._usage: dict[str, float] = {}
        self._since: float | None = None  # when the first thing that is not committed yet came
        self._output = engine.log.outputs.open(str(attempt))
        self.impression = Impression()

    async def follow(self, session: AsyncIterator[SessionEvent]) -> dict[str, Any]:
        """Give the data of EXIT. Raises RunnerLost when the session breaks off."""
        queue: asyncio.Queue[SessionEvent | None] = asyncio.Queue(maxsize=16)
        async with asyncio.TaskGroup() as group:
            pump = group.create_task(_pump(session, queue), name=f"session {self._attempt}")
            data = await self._read(queue)
            pump.cancel()
        if data is None:
            raise RunnerLost
        return data

    async def _read(self, queue: "asyncio.Queue[SessionEvent | None]") -> dict[str, Any] | None:
        while True:
            event = await self._next(queue)
            if event is None or event.kind is SessionEventKind.EXIT:
                self._batch += self._output.close()
                await self._flush()
                return event.data if event else None
            await self._hear(event)

    async def _next(self, queue: "asyncio.Queue[SessionEvent | None]") -> SessionEvent | None:
        """Wait for the next event; what is in the batch is committed once it has lingered."""
        while self._since is not None:
            left = self._since + LINGER - clock.instant()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    return await queue.get()
            except TimeoutError:
                await self._flush()
        return await queue.get()

    async def _hear(self, event: SessionEvent) -> None:
        self._since = clock.instant() if self._since is None else self._since
        match event.kind:
            case SessionEventKind.EVENT:
                self._add(self._event(event.data))
            case SessionEventKind.OUTPUT:
                self._batch += await self._write(str(event.data["stream"]), event.payload)
            case SessionEventKind.USAGE:
                self._usage = {name: float(value) for name, value in event.data.items() if _is_number(value)}
            case SessionEventKind.ASK:
                await self._flush()
                await self._engine.take(Asked(request=self._request(event.data)))
        if len(self._batch) >= BATCH_EVENTS:
            await self._flush()

    async def _write(self, stream: str, payload: bytes) -> list[NewEvent]:
        """Store output; wait as long as there is no space for it. An attempt that is to stop is not waited for."""
        while True:
            try:
                return self._output.write(stream, payload)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
            if self._engine.attempt(str(self._attempt)).cancel_reason:
                logger.warning("output.lost attempt=%s: %s bytes for lack of space", self._attempt, len(payload))
                return []
            await asyncio.sleep(0 if self._engine.log.full else SPACE_LOOK)  # the log itself may not know of it yet
            await self._engine.log.wait_space(SPACE_PATIENCE)

    def _event(self, data: dict[str, Any]) -> NewEvent:
        kind = EventKind(data["kind"])
        self.impression.spoke |= kind is EventKind.SESSION_MESSAGE and bool(str(data["data"].get("text", "")).strip())
        self.impression.acted |= kind in (EventKind.SESSION_TOOL, EventKind.SESSION_PLAN)
        return NewEvent(kind=kind, data=data["data"])

    def _add(self, event: NewEvent) -> None:
        if self._batch and (joined := _join(self._batch[-1], event)):
            self._batch[-1] = joined
        else:
            self._batch.append(event)

    async def _flush(self) -> None:
        events, usage = (*self._batch, *self._output.flush()), self._usage
        self._batch, self._usage, self._since = [], {}, None
        if events or usage:
            await self._engine.take(Progress(attempt=self._attempt, events=events, usage=usage), durable=False)

    def _request(self, data: dict[str, Any]) -> RequestRow:
        return RequestRow(
            id=request_id(self._attempt, str(data["request_id"])),
            kind=RequestKind(data["kind"]),
            node=self._attempt.node,
            attempt=str(self._attempt),
            state=RequestState.OPEN,
            title=str(data.get("title") or "Question"),
            body=str(data.get("body") or ""),
            schema=None if is_deep(data.get("schema")) else data.get("schema"),
            options=tuple(data.get("options") or ()),
            fingerprint=str(data.get("fingerprint") or ""),
            opened_at=clock.label(),
        )


def request_id(attempt: AttemptId, of_runner: str) -> str:
    """Name a request so that it is unique in the task; ``runners_id`` gives the runner's own name back."""
    return f"{attempt}:{of_runner}"


def runners_id(request: str) -> str:
    return request.partition(":")[2]


def _join(earlier: NewEvent, later: NewEvent) -> NewEvent | None:
    """Give one event for two pieces of the same text, None if they are not."""
    if earlier.kind != later.kind or earlier.kind not in _GROWING:
        return None
    first, second = earlier.data, later.data
    if {**first, "text": ""} != {**second, "text": ""} or len(first["text"]) + len(second["text"]) > TEXT_LIMIT:
        return None
    return replace(earlier, data={**first, "text": first["text"] + second["text"]})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_USED


async def _pump(session: AsyncIterator[SessionEvent], queue: "asyncio.Queue[SessionEvent | None]") -> None:
    try:
        async for event in session:
            await queue.put(event)
    except RunnerLost:
        pass
    await queue.put(None)
