"""The runner as the supervisor sees it: ``RunnerLink`` over one proven connection."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.runner import wire
from sandbox_supervisor.runner.link import (
    CommittedTree,
    FoundArtefact,
    RunnerLost,
    RunnerRefused,
    SessionEvent,
    SessionEventKind,
    Spawn,
    Taken,
)

WINDOW = 256 * 1024  # as the runner's; credit is given back in quarters
SLACK = 1024 * 1024  # one event more than the window, at its largest
PACK_LIMIT = 512 * 1024 * 1024
DIFF_LIMIT = 9 * 1024 * 1024  # a little more than a runner gives
_PIECES = {"pack": "pack", "diff": "diff_bytes"}  # the calls that give what was made


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a runner says of itself."""

    pid: int
    isolation: dict[str, str]
    limits: dict[str, str]

    @classmethod
    def read(cls, header: dict[str, Any]) -> "Hello | None":
        try:
            return codec.convert({name: header.get(name) for name in ("pid", "isolation", "limits")}, cls)
        except codec.Malformed:
            return None


@dataclass(slots=True)
class _Inbox:
    """Events of one attempt that nobody has read yet; never more than the window."""

    events: deque[tuple[SessionEvent, int]] = field(default_factory=deque)
    waiting: int = 0  # bytes in ``events``
    read: int = 0  # bytes read since credit was last given
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class RemoteRunner:
    """See ``link.RunnerLink`` for what each call promises."""

    def __init__(self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hello = hello
        self._reader = reader
        self._line = wire.Line(writer)
        self._gone = asyncio.Event()
        self._calls: dict[int, asyncio.Future[tuple[Any, bytes]]] = {}
        self._number = 0
        self._inboxes: dict[str, _Inbox] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        return self._gone.is_set()

    async def wait_lost(self) -> None:
        """Return when the connection has ended."""
        await self._gone.wait()

    def start(self) -> None:
        """Begin to read. Called once, by the gate."""
        self._task = asyncio.create_task(self._read(), name="runner:read")

    async def close(self) -> None:
        """End the connection; the runner then kills its trees."""
        self._line.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    # --- the connection ----------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while frame := await wire.read(self._reader, header_limit=wire.REPORT_LIMIT):
                self._take(frame)
        except (wire.WireError, ConnectionError, OSError):
            pass
        finally:
            self._line.close()
            self._gone.set()
            for future in self._calls.values():
                if not future.done():
                    future.set_exception(RunnerLost("the connection to the runner has ended"))
            for inbox in self._inboxes.values():
                inbox.changed.set()

    def _take(self, frame: wire.Frame) -> None:
        match frame.header:
            case {"t": "event", "attempt": str(attempt), "kind": str(kind), "data": dict(data), "cost": int(cost)}:
                if cost < frame.size:
                    raise wire.WireError("an event that costs less than its bytes")
                self._file(attempt, SessionEvent(kind=_kind(kind), data=data, payload=frame.payload), cost)
            case {"t": "ok", "id": int(number), "r": value}:
                if (future := self._calls.get(number)) and not future.done():
                    future.set_result((value, frame.payload))
            case {"t": "no", "id": int(number), "code": str(code), "message": str(message), "facts": dict(facts)}:
                if (future := self._calls.get(number)) and not future.done():
                    future.set_exception(RunnerRefused(code, message, facts))
            case _:
                raise wire.WireError("an unknown frame")

    def _file(self, attempt: str, event: SessionEvent, cost: int) -> None:
        inbox = self._inboxes.get(attempt)
        if inbox is None or inbox.waiting > WINDOW + SLACK:
            raise wire.WireError("an event that was not asked for, or beyond the window")
        inbox.events.append((event, cost))
        inbox.waiting += cost
        inbox.changed.set()

    async def _call(self, name: str, **arguments: Any) -> tuple[Any, bytes]:
        """Raises RunnerLost, RunnerRefused."""
        if self.lost:
            raise RunnerLost("the connection to the runner has ended")
        self._number += 1
        number = self._number
        future: asyncio.Future[tuple[Any, bytes]] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        try:
            await self._line.send({"t": "call", "id": number, "op": name, "a": arguments})
            return await future
        except ConnectionError:
            raise RunnerLost("the connection to the runner has ended") from None
        finally:
            del self._calls[number]

    # --- process trees -----------------------------------------------------------------------------------------------

    async def prepare(self, attempt: str, base_commit: str) -> str:
        head, _ = await self._call("prepare", attempt=attempt, base_commit=base_commit)
        return str(head)

    async def spawn(self, attempt: str, spawn: Spawn) -> Identity:
        self._inboxes[attempt] = _Inbox()
        identity, _ = await self._call("spawn", attempt=attempt, spawn=codec.plain(spawn))
        return codec.convert(identity, Identity)

    async def go(self, attempt: str) -> None:
        await self._call("go", attempt=attempt)

    async def session(self, attempt: str) -> AsyncIterator[SessionEvent]:
        inbox = self._inboxes.get(attempt)
        if inbox is None:
            raise RunnerRefused("unknown_attempt", f"{attempt!r} was not spawned over this connection")
        while True:
            while not inbox.events:
                if self.lost:
                    raise RunnerLost("the connection to the runner has ended")
                inbox.changed.clear()
                await inbox.changed.wait()
            event, cost = inbox.events.popleft()
            await self._give_credit(attempt, inbox, cost)
            yield event
            if event.kind is SessionEventKind.EXIT:
                self._inboxes.pop(attempt, None)
                return

    async def _give_credit(self, attempt: str, inbox: _Inbox, cost: int) -> None:
        inbox.waiting -= cost
        inbox.read += cost
        if inbox.read < WINDOW // 4:
            return
        amount, inbox.read = inbox.read, 0
        with suppress(ConnectionError):  # what has arrived is still read
            await self._line.send({"t": "credit", "attempt": attempt, "n": amount})

    async def reply(self, attempt: str, request_id: str, answer: dict[str, Any]) -> None:
        await self._call("reply", attempt=attempt, request_id=request_id, answer=answer)

    async def message(self, attempt: str, text: str) -> None:
        await self._call("message", attempt=attempt, text=text)

    async def stop(self, attempt: str, *, kill: bool) -> None:
        await self._call("stop", attempt=attempt, kill=kill)

    async def taken(self) -> Taken:
        taken, _ = await self._call("taken")
        return codec.convert(taken, Taken)

    async def leftovers(self, identities: tuple[Identity, ...]) -> None:
        await self._call("leftovers", identities=codec.plain(identities))

    # --- files -------------------------------------------------------------------------------------------------------

    async def commit(self, attempt: str, *, message: str, base_commit: str) -> CommittedTree:
        made, _ = await self._call("commit", attempt=attempt, message=message, base_commit=base_commit)
        pack = await self._collect("pack", attempt, made["pack"], PACK_LIMIT)
        return CommittedTree(commit=made["commit"], tree=made["tree"], changed=made["changed"], pack=pack)

    async def diff(self, attempt: str, base_commit: str) -> bytes:
        made, _ = await self._call("diff", attempt=attempt, base_commit=base_commit)
        return await self._collect("diff", attempt, made["size"], DIFF_LIMIT)

    async def _collect(self, name: str, attempt: str, size: int, limit: int) -> bytes:
        if size > limit:
            raise RunnerRefused(f"{name}_too_large", f"the {name} of {attempt} has {size} bytes, more than {limit}")
        data = bytearray()
        while len(data) < size:
            _, chunk = await self._call(_PIECES[name], attempt=attempt, offset=len(data))
            if not chunk:
                raise RunnerRefused("cut_short", f"{name} of {attempt} ended after {len(data)} of {size} bytes")
            data += chunk
        return bytes(data)

    async def artefacts(self, attempt: str, rules: tuple[tuple[str, str], ...], quota: int) -> list[FoundArtefact]:
        found, _ = await self._call("artefacts", attempt=attempt, rules=rules, quota=quota)
        return codec.convert(found, list[FoundArtefact])

    async def artefact_bytes(self, attempt: str, path: str) -> AsyncIterator[bytes]:
        offset = 0
        while True:
            _, chunk = await self._call("artefact", attempt=attempt, path=path, offset=offset)
            if not chunk:
                return
            offset += len(chunk)
            yield chunk

    async def result(self, attempt: str) -> bytes | None:
        there, data = await self._call("result", attempt=attempt)
        return data if there else None

    async def list_files(self, attempt: str, path: str) -> list[dict[str, Any]]:
        entries, _ = await self._call("list_files", attempt=attempt, path=path)
        return list(entries)

    async def read_file(self, attempt: str, path: str, offset: int, length: int) -> tuple[bytes, int]:
        size, data = await self._call("read_file", attempt=attempt, path=path, offset=offset, length=length)
        return data, int(size)


def _kind(text: str) -> SessionEventKind:
    try:
        return SessionEventKind(text)
    except ValueError:
        raise wire.WireError(f"an event of kind {text[:40]!r}") from None
