import asyncio
import contextlib
import json
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import AttemptView
from sandbox_supervisor.protocol.states import AttemptState
from sandbox_supervisor.protocol.stream import Ack, CloseCode, Credit, EventsFrame, HeartbeatFrame, Position, Subscribe
from sandbox_supervisor.server.tempo import Tempo
from tests.fixtures.scripted_supervisor import ScriptedSupervisor, served
from tests.fixtures.stream_client import PATIENCE, Subscriber, connected

QUIET = 0.3  # seconds between heartbeats: how a test learns that nothing else is coming


def resident() -> int:
    """Give the bytes of memory that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def until_heartbeat(client: Subscriber, socket) -> list[EventsFrame]:
    """Receive, without acknowledging, until a heartbeat says that the server waits."""
    frames = []
    while not isinstance(frame := await client.receive(socket, ack=False), HeartbeatFrame):
        frames.append(frame)
    return [frame for frame in frames if isinstance(frame, EventsFrame)]


@pytest.mark.parametrize("events", [1, 7, 64])
async def test_no_more_events_are_under_way_than_the_credit_allows(events):
    supervisor = ScriptedSupervisor()
    supervisor.append_many(300)
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor, tempo=Tempo(heartbeat=QUIET)) as server, connected(server) as socket:
        await client.subscribe(socket, credit=Credit(events=events, bytes=1024 * 1024))
        frames = await until_heartbeat(client, socket)
        assert sum(len(frame.events) for frame in frames) == events
        await client.ack(socket)
        frames = await until_heartbeat(client, socket)
    assert sum(len(frame.events) for frame in frames) == events
    assert client.seqs == list(range(1, 2 * events + 1))


async def test_no_more_bytes_are_under_way_than_the_credit_allows_plus_one_event():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(50, data={"text": "x" * 1000})
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor, tempo=Tempo(heartbeat=QUIET)) as server, connected(server) as socket:
        await client.subscribe(socket, credit=Credit(events=1000, bytes=5000))
        frames = await until_heartbeat(client, socket)
    assert 3 <= sum(len(frame.events) for frame in frames) <= 6


async def test_an_event_above_the_whole_credit_still_passes_alone():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(3, data={"text": "x" * 5000})
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor) as server, connected(server) as socket:
        await client.subscribe(socket, credit=Credit(events=1, bytes=1))
        await client.until(socket, 3)
    assert client.seqs == [1, 2, 3]


async def test_heartbeats_go_on_while_the_credit_is_used_up():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(10)
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor, tempo=Tempo(heartbeat=0.1)) as server, connected(server) as socket:
        await client.subscribe(socket, credit=Credit(events=2, bytes=1024))
        await until_heartbeat(client, socket)
        supervisor.append_many(5)
        frame = await client.receive(socket, ack=False)
        while isinstance(frame, HeartbeatFrame) and frame.head < 15:  # sent before
            frame = await client.receive(socket, ack=False)
    assert isinstance(frame, HeartbeatFrame)


async def test_a_client_without_acks_is_closed_as_slow_and_told_what_it_acknowledged():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(10)
    async with served(supervisor, tempo=Tempo(patience=2.0)) as server, connected(server) as socket:
        wish = Subscribe(since=Position(epoch=supervisor.epoch, seq=0), credit=Credit(events=4, bytes=99999))
        await socket.send(codec.encode(wish).decode())
        await socket.recv()
        await socket.recv()
        await socket.send(codec.encode(Ack(seq=4)).decode())
        frames = [json.loads(data) async for data in socket_to_the_end(socket)]
    assert socket.close_code == CloseCode.SLOW_CONSUMER
    assert frames[-1]["code"] == "slow_consumer"
    assert frames[-1]["facts"] == {"acked": 4}


async def test_a_client_that_acknowledges_slowly_but_steadily_stays():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(6)
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor, tempo=Tempo(patience=2.5, heartbeat=0.5)) as server, connected(server) as socket:
        await client.subscribe(socket, credit=Credit(events=1, bytes=9999))
        for _ in range(6):
            await until_heartbeat(client, socket)
            await client.ack(socket)
    assert client.seqs == [1, 2, 3, 4, 5, 6]


async def test_a_stalled_client_costs_others_nothing_and_the_server_no_memory():
    supervisor = ScriptedSupervisor()
    text = "x" * 4000
    stalled, lively = Subscriber(), Subscriber()
    stalled.epoch = lively.epoch = supervisor.epoch
    async with served(supervisor) as server, connected(server) as deaf, connected(server) as socket:
        deaf.transport.pause_reading()
        await stalled.subscribe(deaf, credit=Credit(events=2000, bytes=4 * 1024 * 1024))
        await lively.subscribe(socket)
        supervisor.append_many(100, data={"text": text})
        await lively.until(socket, 100)
        before = resident()
        held = sum(len(event.data["text"]) for event in supervisor.log)
        supervisor.append_many(5000, data={"text": text})
        await lively.until(socket, 5100)
        grown = resident() - before
        deaf.transport.abort()
    assert sum(len(event.data["text"]) for event in supervisor.log) - held == 20_000_000
    assert grown < 20 * 1024 * 1024  # all events share one text: only what the stalled socket holds could show here


async def test_a_snapshot_beyond_the_credit_waits_for_acks_of_its_parts():
    supervisor = ScriptedSupervisor()
    supervisor.attempts = tuple(
        AttemptView(id=f"n{i}.1.1", node=f"n{i}", generation=1, n=1, state=AttemptState.RUNNING, result="x" * 3000)
        for i in range(600)
    )
    client = Subscriber()
    async with served(supervisor, tempo=Tempo(heartbeat=QUIET)) as server, connected(server) as socket:
        await client.subscribe(socket, credit=Credit(events=10, bytes=300_000))
        await until_heartbeat(client, socket)
        assert client.snapshots == []
        part = len([frame for frame in client.frames if frame.__class__.__name__ == "SnapshotFrame"])
        await socket.send(codec.encode(Ack(seq=0, part=part)).decode())
        while not client.snapshots:
            await client.receive(socket)
    assert sum(len(frame.state["attempts"]) for frame in client.snapshots[0]) == 600


async def socket_to_the_end(socket):
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ConnectionClosed):
            while True:
                yield await socket.recv()
