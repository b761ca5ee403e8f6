import asyncio
import contextlib
from contextlib import AsyncExitStack
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import AttemptView
from sandbox_supervisor.protocol.states import AttemptState
from sandbox_supervisor.protocol.stream import (
    CONTROL_LIMIT,
    MESSAGE_LIMIT,
    REPLAY,
    Ack,
    CloseCode,
    Filter,
    HeartbeatFrame,
    Position,
    Resume,
    SnapshotFrame,
    SnapshotReason,
    Subscribe,
)
from sandbox_supervisor.server.tempo import Tempo
from tests.fixtures.scripted_supervisor import ScriptedSupervisor, served
from tests.fixtures.stream_client import PATIENCE, Subscriber, connected


async def closed_with(socket) -> tuple[int, list[dict[str, Any]]]:
    """Read to the end; give the close code and the errors before it."""
    frames: list[dict[str, Any]] = []
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(PATIENCE):
            while True:
                frames.append(codec.decode(await socket.recv(decode=False), dict[str, Any]))
    return socket.close_code, [frame for frame in frames if frame["type"] == "error"]


async def test_a_client_that_knows_nothing_gets_a_snapshot_then_every_later_event():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(3)
    async with served(supervisor) as server, connected(server) as socket:
        client = Subscriber()
        await client.subscribe(socket)
        first = await client.receive(socket)
        assert isinstance(first, SnapshotFrame)
        assert (first.seq, first.reason) == (3, SnapshotReason.FIRST)
        supervisor.append_many(5)
        await client.until(socket, 8)
    assert client.seqs == [4, 5, 6, 7, 8]


async def test_a_client_resumes_right_after_what_it_has_seen():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(10)
    async with served(supervisor) as server, connected(server) as socket:
        client = Subscriber()
        client.epoch, client.upto = supervisor.epoch, 4
        await client.subscribe(socket)
        assert isinstance(await client.receive(socket), Resume)
        await client.until(socket, 10)
    assert client.seqs == [5, 6, 7, 8, 9, 10]
    assert client.snapshots == []


async def test_resuming_at_the_head_replays_nothing():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(2)
    async with served(supervisor) as server, connected(server) as socket:
        client = Subscriber()
        client.epoch, client.upto = supervisor.epoch, 2
        await client.subscribe(socket)
        resume = await client.receive(socket)
        assert isinstance(resume, Resume)
        assert resume.head == 2
        supervisor.append()
        await client.until(socket, 3)
    assert client.seqs == [3]


@pytest.mark.parametrize(
    ("since", "reason"),
    [
        pytest.param(Position(epoch="another", seq=3), SnapshotReason.EPOCH_CHANGED, id="epoch"),
        pytest.param(Position(epoch="epoch-1", seq=6), SnapshotReason.SEQ_AHEAD, id="ahead"),
    ],
)
async def test_a_position_that_this_log_never_had_is_answered_by_a_snapshot_that_says_why(since, reason):
    supervisor = ScriptedSupervisor()
    supervisor.append_many(5)
    async with served(supervisor) as server, connected(server) as socket:
        client = Subscriber()
        await client.subscribe(socket, since=since)
        frame = await client.receive(socket)
    assert isinstance(frame, SnapshotFrame)
    assert (frame.epoch, frame.seq, frame.reason) == ("epoch-1", 5, reason)


@pytest.mark.parametrize(("behind", "answer"), [(REPLAY, Resume), (REPLAY + 1, SnapshotFrame)])
async def test_a_replay_has_a_longest_length(behind, answer):
    supervisor = ScriptedSupervisor()
    supervisor.append_many(REPLAY + 5)
    async with served(supervisor) as server, connected(server) as socket:
        client = Subscriber()
        client.epoch, client.upto = supervisor.epoch, REPLAY + 5 - behind
        await client.subscribe(socket)
        assert isinstance(await client.receive(socket), answer)


async def test_the_history_of_one_attempt_is_replayed_from_any_distance():
    supervisor = ScriptedSupervisor()
    supervisor.append("session.message", attempt="a.1.1", data={"id": "m", "text": "first"})
    supervisor.append_many(REPLAY + 5, attempt="b.1.1")
    async with served(supervisor) as server, connected(server) as socket:
        client = Subscriber()
        client.epoch = supervisor.epoch
        await client.subscribe(socket, filter=Filter(attempts=frozenset({"a.1.1"})))
        assert isinstance(await client.receive(socket), Resume)
        await client.until(socket, 1)
    assert client.texts == ["first"]


async def test_a_new_epoch_between_two_connections_makes_the_client_forget_everything():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(7)
    client = Subscriber()
    async with served(supervisor) as server:
        async with connected(server) as socket:
            await client.subscribe(socket)
            await client.receive(socket)
        supervisor.start_over("epoch-2")
        supervisor.append_many(2)
        async with connected(server) as socket:
            await client.subscribe(socket)
            frame = await client.receive(socket)
    assert isinstance(frame, SnapshotFrame)
    assert (frame.reason, client.position) == (SnapshotReason.EPOCH_CHANGED, Position(epoch="epoch-2", seq=2))


async def test_twenty_reconnections_in_mid_stream_lose_and_repeat_nothing():
    supervisor = ScriptedSupervisor()
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor) as server:
        for turn in range(1, 21):
            async with connected(server) as socket:
                await client.subscribe(socket)
                supervisor.append_many(50, attempt=f"a.1.{turn}")
                await client.receive(socket)
                await client.receive(socket)
        async with connected(server) as socket:
            await client.subscribe(socket)
            await client.until(socket, 1000)
    assert client.seqs == list(range(1, 1001))


async def test_a_restarted_server_is_resumed_by_epoch_and_seq():
    supervisor = ScriptedSupervisor()
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor) as server, connected(server) as socket:
        await client.subscribe(socket)
        supervisor.append_many(30)
        await client.until(socket, 30)
    supervisor.append_many(30)
    async with served(supervisor) as again, connected(again) as socket:
        await client.subscribe(socket)
        await client.until(socket, 60)
    assert client.seqs == list(range(1, 61))


async def test_subscribing_while_a_thousand_events_are_appended_misses_none():
    supervisor = ScriptedSupervisor()
    clients = [Subscriber() for _ in range(5)]

    async def write() -> None:
        for _ in range(1000):
            supervisor.append()
            await asyncio.sleep(0)

    async def follow(client: Subscriber, server) -> list[int]:
        async with connected(server) as socket:
            await client.subscribe(socket)
            await client.receive(socket)
            start = client.upto
            await client.until(socket, 1000)
            return list(range(start + 1, 1001))

    async with served(supervisor) as server, asyncio.TaskGroup() as group:
        followers = [group.create_task(follow(client, server)) for client in clients]
        group.create_task(write())
    assert [client.seqs for client in clients] == [await follower for follower in followers]


async def test_what_a_filter_passes_over_is_covered_and_never_sent():
    supervisor = ScriptedSupervisor()
    client = Subscriber()
    client.epoch = supervisor.epoch
    for number in range(1, 101):
        supervisor.append(node="wanted" if number % 10 == 0 else "other")
    async with served(supervisor) as server, connected(server) as socket:
        await client.subscribe(socket, filter=Filter(nodes=frozenset({"wanted"})))
        await client.until(socket, 100)
    assert client.seqs == list(range(10, 101, 10))


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(Filter(attempts=frozenset({"a.1.1"})), id="attempt"),
        pytest.param(Filter(kinds=frozenset({"output"})), id="kind"),
        pytest.param(Filter(nodes=frozenset({"a"}), kinds=frozenset({"output"})), id="node-and-kind"),
    ],
)
async def test_a_filter_may_name_attempts_and_kinds(wanted):
    supervisor = ScriptedSupervisor()
    client = Subscriber()
    client.epoch = supervisor.epoch
    supervisor.append("node.state", node="b")
    supervisor.append("output", node="a", attempt="a.1.1", data={"stream": "stdout", "text": "x"})
    supervisor.append("session.tool", node="b", attempt="b.1.1")
    async with served(supervisor) as server, connected(server) as socket:
        await client.subscribe(socket, filter=wanted)
        await client.until(socket, 2)
    assert client.seqs == [2]


async def test_a_heartbeat_carries_the_head_and_what_a_filter_passed_over():
    supervisor = ScriptedSupervisor()
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor, tempo=Tempo(heartbeat=0.2)) as server, connected(server) as socket:
        await client.subscribe(socket, filter=Filter(nodes=frozenset({"nobody"})))
        assert isinstance(await client.receive(socket), Resume)
        supervisor.append_many(4)
        frame = await client.receive(socket)
        while not isinstance(frame, HeartbeatFrame) or frame.head < 4:  # one of before may be on its way
            frame = await client.receive(socket)
    assert client.upto == 4
    assert client.seqs == []


async def test_a_second_subscribe_replaces_the_first():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(3, node="a")
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor) as server, connected(server) as socket:
        await client.subscribe(socket, filter=Filter(nodes=frozenset({"b"})))
        await client.receive(socket)
        await client.subscribe(socket, since=Position(epoch=supervisor.epoch, seq=0))
        assert isinstance(await client.receive(socket), Resume)
        await client.until(socket, 3)
    assert client.seqs == [1, 2, 3]


async def test_a_terminal_graph_forbids_no_reconnection():
    supervisor = ScriptedSupervisor()
    supervisor.append("graph.state", data={"state": "succeeded"})
    client = Subscriber()
    client.epoch = supervisor.epoch
    async with served(supervisor) as server:
        for _ in range(2):
            async with connected(server) as socket:
                await client.subscribe(socket)
                await client.until(socket, 1)
    assert client.seqs == [1]


async def test_a_big_snapshot_comes_in_parts_that_add_up():
    supervisor = ScriptedSupervisor()
    supervisor.attempts = tuple(
        AttemptView(id=f"n{i}.1.1", node=f"n{i}", generation=1, n=1, state=AttemptState.RUNNING, result="x" * 3000)
        for i in range(500)
    )
    client = Subscriber()
    async with served(supervisor) as server, connected(server) as socket:
        await client.subscribe(socket)
        while not client.snapshots:
            await client.receive(socket)
    parts = client.snapshots[0]
    assert len(parts) > 1
    assert [item["id"] for part in parts for item in part.state["attempts"]] == [f"n{i}.1.1" for i in range(500)]
    assert parts[0].state["graph"] == "running"


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("{", id="not-json"),
        pytest.param("[]", id="not-an-object"),
        pytest.param('{"type":"subscribe","since":{"epoch":"e","seq":-1}}', id="negative-seq"),
        pytest.param('{"type":"subscribe","credit":{"events":"many"}}', id="wrong-type"),
        pytest.param('{"type":"shout"}', id="unknown-type"),
        pytest.param('{"type":"ack","seq":1}', id="ack-before-subscribe"),
        pytest.param('{"type":"subscribe","x":"' + "x" * CONTROL_LIMIT + '"}', id="above-the-limit"),
    ],
)
async def test_nonsense_is_answered_by_an_error_frame_and_a_close(message):
    async with served(ScriptedSupervisor()) as server, connected(server) as socket:
        await socket.send(message)
        code, errors = await closed_with(socket)
    assert code == CloseCode.PROTOCOL
    assert len(errors) == 1
    assert "xxxx" not in errors[0]["detail"]


async def test_an_ack_of_what_was_never_sent_ends_the_conversation():
    async with served(ScriptedSupervisor()) as server, connected(server) as socket:
        await socket.send(codec.encode(Subscribe()).decode())
        await socket.send(codec.encode(Ack(seq=1)).decode())
        code, errors = await closed_with(socket)
    assert (code, errors[0]["code"]) == (CloseCode.PROTOCOL, "malformed")


async def test_a_message_above_the_limit_is_refused_by_the_socket_itself():
    async with served(ScriptedSupervisor()) as server, connected(server) as socket:
        with contextlib.suppress(ConnectionClosed):  # before the last byte is out
            await socket.send("x" * (MESSAGE_LIMIT + 1))
        code, _ = await closed_with(socket)
    assert code == 1009


async def test_a_silent_client_is_closed_when_it_never_subscribes():
    async with served(ScriptedSupervisor(), tempo=Tempo(patience=0.2)) as server, connected(server) as socket:
        code, errors = await closed_with(socket)
    assert (code, errors[0]["code"]) == (CloseCode.PROTOCOL, "no_subscribe")


async def test_there_is_a_most_of_open_streams(monkeypatch):
    monkeypatch.setattr("sandbox_supervisor.server.stream.MOST_STREAMS", 2)
    async with served(ScriptedSupervisor()) as server, connected(server) as one, connected(server) as two:
        for socket in (one, two):
            await Subscriber().subscribe(socket)
            await socket.recv()
        async with connected(server) as three:
            code, errors = await closed_with(three)
    assert (code, errors[0]["code"]) == (CloseCode.TOO_MANY, "too_many_streams")


async def test_the_end_of_the_server_tells_clients_to_come_back():
    async with AsyncExitStack() as stack:
        async with served(ScriptedSupervisor()) as server:
            socket = await stack.enter_async_context(connected(server))
            await Subscriber().subscribe(socket)
            await socket.recv()
        code, _ = await closed_with(socket)
    assert code == 1012
