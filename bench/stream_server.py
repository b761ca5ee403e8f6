"""The two servers of ``bench/stream.py``, each in a process of its own: our supervisor's, and a raw broadcast.

``ours FOLDER``: the real log and the real server; ``peer``: ``websockets`` broadcasting the same from memory. Both
print ``{port, fingerprint}`` and then take one JSON command a line: {"write": {kind, seconds, rate, size}}.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from websockets.asyncio.server import broadcast
from websockets.asyncio.server import serve as serve_websockets

from sandbox_supervisor.graph.rows import Change, NewEvent
from sandbox_supervisor.log import Log
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import Envelope
from sandbox_supervisor.protocol.messages import Head, Snapshot
from sandbox_supervisor.protocol.states import GraphState
from sandbox_supervisor.server.serve import ServerIdentity, serve
from sandbox_supervisor.server.tls import fingerprint, server_context
from tests.fixtures.scripted_supervisor import TOKEN, certificate

TICK = 0.005  # seconds between two commits
ATTEMPTS = 4

Publish = Callable[[list[NewEvent]], Awaitable[None]]


class Reading:
    """As much of a supervisor as the stream needs, over a real log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.epoch = log.epoch

    def head(self) -> Head:
        return self._log.head()

    async def events(self, after: int, limit: int) -> list[Envelope]:
        return await self._log.events(after, limit)

    async def wait_past(self, seq: int, timeout: float) -> bool:
        return await self._log.wait_past(seq, timeout)

    async def snapshot(self) -> Snapshot:
        return Snapshot(
            epoch=self.epoch,
            seq=self.head().seq,
            graph=GraphState.RUNNING,
            round=1,
            boot=1,
            nodes=(),
            attempts=(),
            requests=(),
        )


def make(kind: str, number: int, size: int) -> NewEvent:
    """Make one event that carries the moment of its birth (nanoseconds of this machine's monotonic clock)."""
    attempt = f"a{number % ATTEMPTS}.1.1"
    data: dict[str, Any] = {"born": time.monotonic_ns(), "text": "x" * size}
    if kind == "session.message":
        data |= {"id": "m", "role": "agent"}
    return NewEvent(kind=kind, node=f"a{number % ATTEMPTS}", generation=1, attempt=attempt, data=data)


async def write(publish: Publish, *, kind: str, seconds: float, rate: int, size: int) -> int:
    """Publish ``rate`` events a second; give their number."""
    loop = asyncio.get_running_loop()
    began, done, total = loop.time(), 0, int(seconds * rate)
    while done < total:
        due = min(int((loop.time() - began) * rate) + 1, total)
        if due > done:
            await publish([make(kind, number, size) for number in range(done, due)])
            done = due
        await asyncio.sleep(TICK)
    return done


async def ours(folder: Path) -> None:
    log = Log.open(folder)
    listener = socket.create_server(("127.0.0.1", 0))
    started = asyncio.Event()
    identity = ServerIdentity(instance="bench", specification="")
    running = asyncio.create_task(
        serve(Reading(log), listener=listener, pem=certificate(), token=TOKEN, identity=identity, started=started)  # type: ignore[arg-type]
    )
    await started.wait()

    async def publish(events: list[NewEvent]) -> None:
        await log.commit(Change(events=tuple(events)), durable=False)

    await obey(listener.getsockname()[1], publish)
    running.cancel()
    await asyncio.wait({running})
    await log.close()


async def peer() -> None:
    connections: set[Any] = set()
    seq = 0

    async def handle(connection: Any) -> None:
        connections.add(connection)
        try:
            await connection.wait_closed()
        finally:
            connections.discard(connection)

    async def publish(events: list[NewEvent]) -> None:
        nonlocal seq
        for event in events:
            seq += 1
            broadcast(connections, codec.encode({"seq": seq, "kind": event.kind, "data": event.data}).decode())

    context = server_context(certificate())
    async with serve_websockets(handle, "127.0.0.1", 0, ssl=context, compression=None) as server:
        await obey(server.sockets[0].getsockname()[1], publish)


async def obey(port: int, publish: Publish) -> None:
    say({"port": port, "fingerprint": fingerprint(certificate())})
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        say({"written": await write(publish, **json.loads(line)["write"])})


def say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(ours(Path(sys.argv[2])) if sys.argv[1] == "ours" else peer())
