"""Above 200 events or 2 MB a second texts are merged; nothing is lost, and ranges are named."""

import asyncio

from sandbox_supervisor.protocol.stream import HEARTBEAT, Credit, EventsFrame
from sandbox_supervisor.server.pace import BURST, BYTES_PER_SECOND, EVENTS_PER_SECOND, Pace
from tests.fixtures.scripted_supervisor import ScriptedSupervisor, served
from tests.fixtures.stream_client import Subscriber, connected

PLENTY = Credit(events=2000, bytes=4 * 1024 * 1024)


async def follow(supervisor: ScriptedSupervisor, upto: int) -> Subscriber:
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor) as server, connected(server) as socket:
        await client.subscribe(socket, credit=PLENTY)
        await client.until(socket, upto)
    return client


async def test_a_burst_of_text_is_merged_and_no_character_is_lost():
    supervisor = ScriptedSupervisor()
    for number in range(4000):
        supervisor.append(
            "session.message", attempt=f"a{number % 2}.1.1", data={"id": "m", "role": "agent", "text": f"{number};"}
        )
    client = await follow(supervisor, 4000)
    received = "".join(client.texts)
    assert sorted(received.split(";")[:-1], key=int) == [str(number) for number in range(4000)]
    assert len(client.seqs) < 2000
    assert client.merged


async def test_a_quiet_stream_is_never_merged():
    supervisor = ScriptedSupervisor()
    for number in range(100):
        supervisor.append("session.message", attempt="a.1.1", data={"id": "m", "role": "agent", "text": f"{number};"})
    client = await follow(supervisor, 100)
    assert client.seqs == list(range(1, 101))
    assert client.merged == []


async def test_states_pass_one_by_one_whatever_their_number():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(3000)
    client = await follow(supervisor, 3000)
    assert client.seqs == list(range(1, 3001))


async def test_above_the_byte_budget_the_middle_of_texts_is_cut_and_named():
    supervisor = ScriptedSupervisor()
    for _ in range(1000):
        supervisor.append("output", attempt="a.1.1", data={"stream": "stdout", "text": "x" * 15_000})
    client = await follow(supervisor, 1000)
    frames = [frame for frame in client.frames if isinstance(frame, EventsFrame)]
    dropped = sum(note.dropped_bytes for frame in frames for note in frame.merged)
    shown = sum(text.count("x") for text in client.texts)
    assert dropped > 0
    assert shown + dropped == 15_000_000


async def test_a_merged_stream_can_be_cut_and_resumed_anywhere(monkeypatch):
    monkeypatch.setattr(Pace, "too_many_events", lambda pace: True)
    supervisor = ScriptedSupervisor()
    for number in range(1500):
        text = f"{number};" * (1 + number % 40)
        supervisor.append("output", attempt=f"a{number % 3}.1.1", data={"stream": "stdout", "text": text})
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor) as server:
        while client.upto < 1500:
            async with connected(server) as socket:
                await client.subscribe(socket, credit=Credit(events=8, bytes=12_000))
                await client.receive(socket)
                await client.receive(socket)
    pieces = "".join(client.texts).split(";")[:-1]
    assert sorted(pieces, key=int) == [str(number) for number in range(1500) for _ in range(1 + number % 40)]
    assert client.merged


async def test_events_that_come_one_at_a_time_are_not_held_back():
    supervisor = ScriptedSupervisor()
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor) as server, connected(server) as socket:
        await client.subscribe(socket)
        await client.receive(socket)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(1, 101):
            supervisor.append()
            await client.until(socket, number)
        assert loop.time() - began < HEARTBEAT  # with which at the latest everything comes
    assert client.seqs == list(range(1, 101))


def test_a_budget_fills_with_time_up_to_a_burst():
    pace = Pace(now=0.0)
    pace.spend(int(EVENTS_PER_SECOND * BURST), 0)
    assert pace.too_many_events()
    assert not pace.too_many_bytes()
    pace.refill(1.0)
    assert not pace.too_many_events()
    pace.refill(1000.0)
    assert pace.events == EVENTS_PER_SECOND * BURST


def test_a_debt_is_paid_back_within_a_second():
    pace = Pace(now=0.0)
    pace.spend(1_000_000, int(100 * BYTES_PER_SECOND))
    pace.refill(1.01)
    assert not pace.too_many_events()
    assert not pace.too_many_bytes()
