"""The event stream under load: 2 000 events a second, ten subscribers that keep reconnecting, one that never reads.

``python -m bench.stream [--seconds 20] [--rate 2000]`` prints one JSON object: gaps, duplicates, latency from commit to
receipt, memory of the server, and the rate of a catch-up beside that of a raw ``websockets`` broadcast in the same run.
"""

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from bench import machine
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.stream import Ack, Credit, EventsFrame, Position, Subscribe, read_server_frame
from tests.fixtures.scripted_supervisor import TOKEN
from tests.fixtures.stream_client import trusting

ROOT = Path(__file__).parents[1]
SUBSCRIBERS = 10
RECONNECTIONS = 5
CREDIT = Credit(events=2000, bytes=2 * 1024 * 1024)
PATIENCE = 60.0


class Server:
    """A child of ``stream_server``."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.url = f"wss://127.0.0.1:{port}"

    async def write(self, **wish: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"write": wish}).encode() + b"\n")
        return int(json.loads(await self._process.stdout.readline())["written"])

    @property
    def resident(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * 4096


@asynccontextmanager
async def server(*arguments: str) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.stream_server",
        *arguments,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield Server(process, json.loads(await process.stdout.readline())["port"])
    finally:
        process.kill()
        await process.wait()


def dial(url: str) -> connect:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return connect(url, ssl=trusting(), additional_headers=headers, proxy=None, compression=None, max_size=None)


class Follower:
    """One subscriber: counts what no subscriber may ever see, and how late things come."""

    def __init__(self) -> None:
        self.position: Position | None = None
        self.events = 0
        self.gaps = 0
        self.duplicates = 0
        self.snapshots = 0
        self.late: list[float] = []  # milliseconds
        self._newest = 0

    async def follow(self, url: str, *, until: int, cuts: list[int]) -> None:
        """Receive up to ``until``; break the connection when each of ``cuts`` has been passed."""
        while (self.position.seq if self.position else 0) < until:
            async with dial(url + "/v1/stream") as socket:
                await socket.send(codec.encode(Subscribe(since=self.position, credit=CREDIT)).decode())
                stop = cuts.pop(0) if cuts else until
                while (self.position.seq if self.position else -1) < stop:
                    async with asyncio.timeout(PATIENCE):
                        data = await socket.recv(decode=False)
                    await self._take(socket, data)
                socket.transport.abort()

    async def _take(self, socket: ClientConnection, data: bytes) -> None:
        now = time.monotonic_ns()
        frame = read_server_frame(data)
        if isinstance(frame, EventsFrame):
            self._count(frame, now)
            self.position = Position(epoch=frame.epoch, seq=frame.upto)
            await socket.send(codec.encode(Ack(seq=frame.upto)).decode())
        elif frame.__class__.__name__ == "SnapshotFrame":
            self.snapshots += 1
            self.position = Position(epoch=frame.epoch, seq=frame.seq)
            self._newest = frame.seq

    def _count(self, frame: EventsFrame, now: int) -> None:
        self.gaps += self.position is not None and frame.prev != self.position.seq
        covered = sum(note.events - 1 for note in frame.merged) + len(frame.events)
        self.gaps += covered != frame.upto - frame.prev
        for event in frame.events:
            self.events += 1
            self.duplicates += event.seq <= self._newest
            self._newest = max(self._newest, event.seq)
            born = event.data.get("born")
            if isinstance(born, int):
                self.late.append((now - born) / 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    kind: str
    written: int
    received_each: list[int]
    gaps: int
    duplicates: int
    snapshots_after_the_first: int
    latency_p50_ms: float
    latency_p99_ms: float
    server_mib_before: float
    server_mib_peak: float
    server_mib_growth: float


async def load(ours: Server, *, kind: str, seconds: float, rate: int, start: int) -> Load:
    """Ten followers with random cuts and one deaf subscriber, while the writer writes."""
    total = start + int(seconds * rate)
    followers = [Follower() for _ in range(SUBSCRIBERS)]
    peak = before = ours.resident
    async with dial(ours.url + "/v1/stream") as deaf, asyncio.TaskGroup() as group:
        await deaf.send(codec.encode(Subscribe(credit=CREDIT)).decode())
        deaf.transport.pause_reading()
        for follower in followers:
            cuts = sorted(random.sample(range(start + 1, total), RECONNECTIONS))
            group.create_task(follower.follow(ours.url, until=total, cuts=cuts))
        await asyncio.sleep(0.5)
        writing = group.create_task(ours.write(kind=kind, seconds=seconds, rate=rate, size=400))
        while not writing.done():
            await asyncio.sleep(0.2)
            peak = max(peak, ours.resident)
        deaf.transport.abort()
    late = sorted(value for follower in followers for value in follower.late)
    return Load(
        kind=kind,
        written=writing.result(),
        received_each=[follower.events for follower in followers],
        gaps=sum(follower.gaps for follower in followers),
        duplicates=sum(follower.duplicates for follower in followers),
        snapshots_after_the_first=sum(follower.snapshots - 1 for follower in followers),
        latency_p50_ms=round(statistics.median(late), 2),
        latency_p99_ms=round(late[int(len(late) * 0.99)], 2),
        server_mib_before=round(before / 2**20, 1),
        server_mib_peak=round(peak / 2**20, 1),
        server_mib_growth=round((peak - before) / 2**20, 1),
    )


async def catch_up(ours: Server, epoch_of: Follower, total: int, count: int) -> float:
    """Ten subscribers read the last ``count`` events as fast as they can; give events a second, all together."""
    assert epoch_of.position is not None
    followers = [Follower() for _ in range(SUBSCRIBERS)]
    for follower in followers:
        follower.position = Position(epoch=epoch_of.position.epoch, seq=total - count)
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for follower in followers:
            group.create_task(follower.follow(ours.url, until=total, cuts=[]))
    return SUBSCRIBERS * count / (time.monotonic() - began)


async def raw_broadcast(count: int) -> float:
    """The peer: the same number of events to as many subscribers, from memory, without history, credits or acks."""
    async with server("peer") as peer, contextlib.AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(dial(peer.url)) for _ in range(SUBSCRIBERS)]
        await asyncio.sleep(0.2)

        async def read(socket: ClientConnection) -> None:
            for _ in range(count):
                json.loads(await socket.recv(decode=False))

        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(peer.write(kind="node.state", seconds=0.001, rate=count * 1000, size=400))
            for socket in sockets:
                group.create_task(read(socket))
        return SUBSCRIBERS * count / (time.monotonic() - began)


async def measure(*, seconds: float, rate: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="caisson-bench-") as folder:
        async with server("ours", folder) as ours:
            states = await load(ours, kind="node.state", seconds=seconds, rate=rate, start=0)
            texts = await load(ours, kind="session.message", seconds=seconds, rate=rate, start=states.written)
            total = states.written + texts.written
            probe = Follower()
            async with dial(ours.url + "/v1/stream") as socket:
                await socket.send(codec.encode(Subscribe()).decode())
                await probe._take(socket, await socket.recv(decode=False))
            await ours.write(kind="node.state", seconds=0.001, rate=9_000_000, size=400)
            reading = await catch_up(ours, probe, total + 9_000, 9_000)
    broadcast = await raw_broadcast(9_000)
    return {
        "benchmark": "stream",
        "machine": machine.describe(),
        "seconds": seconds,
        "rate": rate,
        "subscribers": SUBSCRIBERS,
        "reconnections_each": RECONNECTIONS,
        "states": asdict(states),
        "texts": asdict(texts),
        "catch_up_events_per_second": round(reading),
        "raw_broadcast_events_per_second": round(broadcast),
        "catch_up_to_broadcast": round(reading / broadcast, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=int, default=2000)
    asked = parser.parse_args()
    sys.stdout.write(json.dumps(asyncio.run(measure(seconds=asked.seconds, rate=asked.rate)), indent=2) + "\n")


if __name__ == "__main__":
    main()
