"""One connection of the runner to the supervisor: calls in, answers and session events out."""

import asyncio
import os
import socket
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox_supervisor.git import GitFailed
from sandbox_supervisor.protocol import PROTOCOL
from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.runner import wire
from sandbox_supervisor.runner.execution import Send
from sandbox_supervisor.runner.link import RunnerRefused, SessionEventKind
from sandbox_supervisor.runner.operations import Operations, Place

SOCKET = "ctl.sock"
WINDOW = 256 * 1024  # bytes of one attempt's events that may be under way; then its senders wait
CALLS_LIMIT = 512  # under way at once
EVENT_COST = 256  # what an event counts beside its bytes


async def serve(place: Place, nonce: str) -> bool:
    """Serve one connection to its end, then prove that no tree is left. False if nobody listens."""
    try:
        reader, writer = await _connect(place.ctl)
    except OSError:
        return False
    service = _Service(place, wire.Line(writer))
    try:
        await service.line.send(_hello(place, nonce))
        await service.listen(reader)
    except (wire.WireError, ConnectionError, OSError):
        pass
    finally:
        await _unhurried(service.end())
    return True


async def _unhurried(work: Coroutine[Any, Any, None]) -> None:
    """Carry ``work`` out to its end, however often this task is cancelled meanwhile."""
    task = asyncio.create_task(work, name="end")
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)


async def _connect(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect by descriptor: the path itself may be too long for a socket address."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, f"/proc/self/fd/{fd}/{SOCKET}")
        except OSError:
            sock.close()
            raise
    finally:
        os.close(fd)
    return await asyncio.open_unix_connection(sock=sock)


def _hello(place: Place, nonce: str) -> dict[str, Any]:
    isolation = {"tier": place.isolation.tier, "reason": place.isolation.reason}
    limits = {"memory": f"RLIMIT_DATA {place.memory}" if place.memory else "none", "cpu": "nice 5"}
    return {
        "t": "hello", "protocol": PROTOCOL, "nonce": nonce, "pid": os.getpid(), "isolation": isolation,
        "limits": limits,
    }  # fmt: skip


class _Service:
    def __init__(self, place: Place, line: wire.Line) -> None:
        self.line = line
        self._operations = Operations(place, self._sender)
        self._credit: dict[str, int] = {}
        self._granted = asyncio.Condition()
        self._calls: set[asyncio.Task[None]] = set()

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Obey frames until the stream ends. Raises WireError."""
        while frame := await wire.read(reader, header_limit=wire.CALL_LIMIT):
            match frame.header:
                case {"t": "call", "id": int(number), "op": str(name), "a": dict(arguments)}:
                    self._begin(number, name, arguments)
                case {"t": "credit", "attempt": str(attempt), "n": int(amount)}:
                    await self._grant(attempt, amount)
                case _:
                    raise wire.WireError("an unknown frame")

    def _begin(self, number: int, name: str, arguments: dict[str, Any]) -> None:
        if len(self._calls) >= CALLS_LIMIT:
            raise wire.WireError("too many calls at once")
        task = asyncio.create_task(self._answer(number, name, arguments), name=f"call:{name}")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _answer(self, number: int, name: str, arguments: dict[str, Any]) -> None:
        try:
            value, payload = await self._operations.call(name, arguments)
            answer = {"t": "ok", "id": number, "r": value}
        except RunnerRefused as refused:
            payload = b""
            answer = _no(number, refused.code, refused.message, refused.facts)
        except GitFailed as error:
            payload = b""
            answer = _no(number, f"git_{error.code}", error.message, {})
        except (OSError, Malformed) as error:
            payload = b""
            answer = _no(number, "failed", f"{name}: {error}", {})
        except Exception as error:  # noqa: BLE001  # whoever asked gets an answer, whatever went wrong here
            payload = b""
            answer = _no(number, "internal", f"{name}: {type(error).__name__}: {error}", {})
        try:
            await self.line.send(answer, payload)
        except ConnectionError:
            return

    def _sender(self, attempt: str) -> Send:
        """Give the function through which an attempt's events leave; it waits while the window is used up."""
        self._credit[attempt] = WINDOW

        async def send(kind: SessionEventKind, data: dict[str, Any], payload: bytes) -> None:
            header = {"t": "event", "attempt": attempt, "kind": kind, "data": data}
            size = EVENT_COST + len(wire.pack(header)) + len(payload)
            async with self._granted:
                await self._granted.wait_for(lambda: self._credit[attempt] > 0)
                self._credit[attempt] -= size
            await self.line.send(header | {"cost": size}, payload)

        return send

    async def _grant(self, attempt: str, amount: int) -> None:
        async with self._granted:
            if attempt in self._credit:
                self._credit[attempt] += amount
            self._granted.notify_all()

    async def end(self) -> None:
        """Kill every tree and wait for the proof; calls under way are given up."""
        self.line.close()
        calls = list(self._calls)
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._operations.kill_all()


def _no(number: int, code: str, message: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {"t": "no", "id": number, "code": code, "message": message[:4000], "facts": facts}
