"""Browser ⇄ daphne ⇄ supervisor: real processes and sockets on both sides."""

import asyncio
import contextlib
import json
from contextlib import AsyncExitStack

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sandbox_supervisor.protocol.stream import (
    CloseCode,
    Credit,
    EventsFrame,
    Filter,
    Health,
    HealthFrame,
    Position,
    Resume,
    SnapshotFrame,
    SnapshotReason,
    TaskFrame,
)
from sandbox_supervisor.server.tls import fingerprint
from tests.fixtures.bound_only import bound_only
from tests.fixtures.scripted_supervisor import ScriptedSupervisor, certificate, served
from tests.fixtures.stream_client import PATIENCE, Subscriber

pytestmark = pytest.mark.xdist_group("daphne")  # one daphne is enough


async def close_code(socket) -> tuple[int, str]:
    """Read to the end; give the code and the code word of the last error frame."""
    word = ""
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(PATIENCE):
            while True:
                word = json.loads(await socket.recv()).get("code", word)
    return socket.close_code, word


async def until(client: Subscriber, socket, kind: type, **options):
    """Receive until a frame of ``kind`` comes."""
    while not isinstance(frame := await client.receive(socket, **options), kind):
        pass
    return frame


# --- who may watch ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["http://evil.test", "http://console.test", "https://console.test:8765", None])
async def test_another_origin_is_refused_before_the_upgrade(web, viewer, origin):
    task = web.task()
    with pytest.raises(InvalidStatus) as refused:
        async with web.console(task["id"], cookie=viewer, origin=origin):
            pass
    assert refused.value.response.status_code == 403


async def test_without_the_sub_protocol_nothing_opens(web, viewer):
    task = web.task()
    with pytest.raises(InvalidStatus):
        async with web.console(task["id"], cookie=viewer, subprotocols=["chat"]):
            pass


@pytest.mark.parametrize("cookie", ["", "sessionid=forged"])
async def test_without_a_session_the_socket_says_so_and_closes(web, cookie):
    task = web.task()
    async with web.console(task["id"], cookie=cookie) as socket:
        assert await close_code(socket) == (CloseCode.UNAUTHENTICATED, "unauthenticated")


async def test_a_task_of_another_workspace_and_one_that_never_was_look_alike(web):
    stranger = web.clerk("sign_in", workspace="other", role="admin")["cookie"]
    answers = []
    for task in (web.task()["id"], "tsk_00000000000000000000000000"):
        async with web.console(task, cookie=stranger) as socket:
            answers.append(await close_code(socket))
    assert answers == [(CloseCode.NOT_FOUND, "not_found")] * 2


async def test_a_session_that_ends_ends_its_sockets(web):
    session = web.clerk("sign_in", workspace="main", role="operator")
    async with served(ScriptedSupervisor()) as server:
        task = web.task(server)
        async with web.console(task["id"], cookie=session["cookie"]) as socket:
            await Subscriber().subscribe(socket)
            web.clerk("sign_out", session=session["session"])
            assert await close_code(socket) == (CloseCode.UNAUTHENTICATED, "unauthenticated")


async def test_a_member_who_leaves_the_workspace_loses_the_socket(web):
    session = web.clerk("sign_in", workspace="main", role="maintainer")
    task = web.task()
    try:
        async with web.console(task["id"], cookie=session["cookie"]) as socket:
            await Subscriber().subscribe(socket)
            web.clerk("leave", role="maintainer")
            assert await close_code(socket) == (CloseCode.NOT_FOUND, "not_found")
    finally:
        web.clerk("join", role="maintainer")


async def test_one_task_has_a_most_of_sockets_and_gives_them_back(web, viewer):
    task = web.task()
    async with AsyncExitStack() as stack:
        for _ in range(8):
            socket = await stack.enter_async_context(web.console(task["id"], cookie=viewer))
            await Subscriber().subscribe(socket)
            await socket.recv()
        async with web.console(task["id"], cookie=viewer) as one_more:
            assert await close_code(one_more) == (CloseCode.TOO_MANY, "too_many_sockets")
    async with web.console(task["id"], cookie=viewer) as again:
        await Subscriber().subscribe(again)
        assert json.loads(await again.recv())["type"] == "health"


# --- what passes -----------------------------------------------------------------------------------------------------


async def following(web, supervisor, viewer, stack: AsyncExitStack, *, life: AsyncExitStack | None = None):
    """Serve ``supervisor`` with the dial token of a new task, until ``life`` ends, and open a console on it."""
    task = web.task()
    server = await (life or stack).enter_async_context(served(supervisor, token=task["token"]))
    endpoint = {"host": "127.0.0.1", "port": server.port, "fingerprint": server.fingerprint}
    web.clerk("change", task=task["id"], endpoint=endpoint)
    socket = await stack.enter_async_context(web.console(task["id"], cookie=viewer))
    return task, server, socket


async def test_snapshot_and_events_reach_the_browser_unchanged(web, viewer):
    supervisor, client = ScriptedSupervisor(), Subscriber()
    supervisor.append_many(3)
    async with AsyncExitStack() as stack:
        _, _, socket = await following(web, supervisor, viewer, stack)
        await client.subscribe(socket)
        snapshot = await until(client, socket, SnapshotFrame)
        supervisor.append("output", attempt="a.1.1", data={"text": "é\u2028<script>", "stream": "stdout"})
        events = await until(client, socket, EventsFrame)
    assert (snapshot.seq, snapshot.reason) == (3, SnapshotReason.FIRST)
    assert events.events == (supervisor.log[3],)


async def test_a_filter_and_a_position_reach_the_supervisor(web, viewer):
    supervisor, client = ScriptedSupervisor(), Subscriber()
    for number in range(20):
        supervisor.append(node="a" if number % 2 else "b")
    client.epoch, client.upto = supervisor.epoch, 10
    async with AsyncExitStack() as stack:
        _, _, socket = await following(web, supervisor, viewer, stack)
        await client.subscribe(socket, filter=Filter(nodes=frozenset({"a"})))
        await client.until(socket, 20)
    assert client.seqs == [12, 14, 16, 18, 20]


async def test_twenty_reconnections_of_a_browser_lose_and_repeat_nothing(web, viewer):
    supervisor, client = ScriptedSupervisor(), Subscriber()
    client.epoch = supervisor.epoch
    async with AsyncExitStack() as stack:
        task, _, first = await following(web, supervisor, viewer, stack)
        await first.close()
        for _ in range(20):
            async with web.console(task["id"], cookie=viewer) as socket:
                await client.subscribe(socket)
                supervisor.append_many(25)
                await until(client, socket, EventsFrame)
        async with web.console(task["id"], cookie=viewer) as socket:
            await client.subscribe(socket)
            await client.until(socket, 500)
    assert client.seqs == list(range(1, 501))


async def test_a_supervisor_that_restarts_is_joined_again_on_the_same_browser_socket(web, viewer):
    supervisor, client = ScriptedSupervisor(), Subscriber()
    client.epoch = supervisor.epoch
    async with AsyncExitStack() as stack:
        async with AsyncExitStack() as life:
            task, server, socket = await following(web, supervisor, viewer, stack, life=life)
            await client.subscribe(socket)
            supervisor.append_many(40)
            await client.until(socket, 40)
        away = await until(client, socket, HealthFrame)
        assert away.state is Health.UNREACHABLE
        supervisor.append_many(40)
        async with served(supervisor, token=task["token"], port=server.port):
            back = await until(client, socket, HealthFrame)
            assert back.state is Health.REACHABLE
            await client.until(socket, 80)
    assert client.seqs == list(range(1, 81))
    assert client.snapshots == []
    assert [frame.seq for frame in client.frames if isinstance(frame, Resume)] == [0, 40]


async def test_a_supervisor_that_comes_back_with_another_log_sends_a_snapshot(web, viewer):
    supervisor, client = ScriptedSupervisor(), Subscriber()
    client.epoch = supervisor.epoch
    async with AsyncExitStack() as stack:
        async with AsyncExitStack() as life:
            task, server, socket = await following(web, supervisor, viewer, stack, life=life)
            await client.subscribe(socket)
            supervisor.append_many(5)
            await client.until(socket, 5)
        supervisor.start_over("epoch-2")
        async with served(supervisor, token=task["token"], port=server.port):
            snapshot = await until(client, socket, SnapshotFrame)
    assert (snapshot.reason, snapshot.epoch) == (SnapshotReason.EPOCH_CHANGED, "epoch-2")


async def test_a_console_may_open_before_the_sandbox_is_there(web, viewer):
    supervisor, client = ScriptedSupervisor(), Subscriber()
    task = web.task(presence="none")
    async with AsyncExitStack() as stack:
        socket = await stack.enter_async_context(web.console(task["id"], cookie=viewer))
        await client.subscribe(socket)
        assert (await until(client, socket, HealthFrame)).state is Health.WAITING
        server = await stack.enter_async_context(served(supervisor, token=task["token"]))
        endpoint = {"host": "127.0.0.1", "port": server.port, "fingerprint": server.fingerprint}
        web.clerk("change", task=task["id"], endpoint=endpoint, presence="present")
        await until(client, socket, SnapshotFrame)


@pytest.mark.parametrize(
    ("presence", "code"),
    [
        ("reclaimed", CloseCode.RECLAIMED),
        ("reclaiming", CloseCode.RECLAIMED),
        ("lost", CloseCode.NO_SANDBOX),
        ("terminated", CloseCode.NO_SANDBOX),
    ],
)
async def test_a_sandbox_that_will_never_answer_again_has_its_own_code(web, viewer, presence, code):
    task = web.task(presence=presence)
    async with web.console(task["id"], cookie=viewer) as socket:
        await Subscriber().subscribe(socket)
        assert (await close_code(socket))[0] == code


async def test_a_hint_about_the_task_reaches_the_browser(web, viewer):
    supervisor, client = ScriptedSupervisor(), Subscriber()
    async with AsyncExitStack() as stack:
        task, _, socket = await following(web, supervisor, viewer, stack)
        await client.subscribe(socket)
        await until(client, socket, SnapshotFrame)
        web.clerk("nudge", task=task["id"])
        await until(client, socket, TaskFrame)


@pytest.mark.parametrize(
    "message",
    ["{", '{"type":"shout"}', '{"type":"ack","seq":5}', '{"type":"subscribe","since":"' + "x" * 20_000 + '"}'],
)
async def test_nonsense_from_a_browser_closes_its_socket(web, viewer, message):
    task = web.task()
    async with web.console(task["id"], cookie=viewer) as socket:
        await socket.send(message)
        assert await close_code(socket) == (CloseCode.PROTOCOL, "malformed")


async def test_a_socket_that_never_subscribes_is_closed(web, viewer):
    async with web.console(web.task()["id"], cookie=viewer) as socket:
        assert await close_code(socket) == (CloseCode.PROTOCOL, "malformed")


async def test_a_browser_that_keeps_starting_anew_is_closed(web, viewer):
    async with web.console(web.task()["id"], cookie=viewer) as socket:
        with contextlib.suppress(ConnectionClosed):  # as soon as it has heard enough
            for _ in range(100):
                await socket.send('{"type":"subscribe"}')
        assert await close_code(socket) == (CloseCode.TOO_MANY, "too_many_subscribes")


async def test_a_browser_message_above_the_limit_is_refused(web, viewer):
    task = web.task()
    async with web.console(task["id"], cookie=viewer) as socket:
        with contextlib.suppress(ConnectionClosed):  # before the last byte is out
            await socket.send("x" * (1024 * 1024 + 1))
        code, _ = await close_code(socket)
    assert code in {1006, 1009}  # daphne drops the connection


# --- credits ---------------------------------------------------------------------------------------------------------


async def test_a_stalled_browser_never_grows_the_control_plane_and_is_closed(web, viewer):
    supervisor, client = ScriptedSupervisor(), Subscriber()
    client.epoch = supervisor.epoch
    async with AsyncExitStack() as stack:
        _, _, socket = await following(web, supervisor, viewer, stack)
        socket.transport.pause_reading()
        await client.subscribe(socket, credit=Credit(events=10**6, bytes=10**9))
        before = web.resident
        for _ in range(5000):
            supervisor.append("session.tool", attempt="a.1.1", data={"title": "x" * 10_000})
        peak = before
        for _ in range(20):
            await asyncio.sleep(0.05)
            peak = max(peak, web.resident)
        socket.transport.resume_reading()
        code, word = await close_code(socket)
    assert (code, word) == (CloseCode.SLOW_CONSUMER, "slow_consumer")
    assert peak - before < 16 * 1024 * 1024


async def test_a_browser_that_acknowledges_gets_everything_however_small_its_credit(web, viewer):
    supervisor, client = ScriptedSupervisor(), Subscriber()
    client.epoch = supervisor.epoch
    async with AsyncExitStack() as stack:
        _, _, socket = await following(web, supervisor, viewer, stack)
        await client.subscribe(socket, credit=Credit(events=3, bytes=2000))
        supervisor.append_many(100)
        await client.until(socket, 100)
    assert client.seqs == list(range(1, 101))


# --- whom it speaks to -----------------------------------------------------------------------------------------------


async def test_a_supervisor_with_another_certificate_is_not_spoken_to(web, viewer):
    client = Subscriber()
    async with served(ScriptedSupervisor(), pem=certificate("impostor")) as impostor:
        task = web.task()
        endpoint = {"host": "127.0.0.1", "port": impostor.port, "fingerprint": fingerprint(certificate())}
        web.clerk("change", task=task["id"], endpoint=endpoint)
        async with web.console(task["id"], cookie=viewer) as socket:
            await client.subscribe(socket)
            health = await until(client, socket, HealthFrame)
    assert health.state is Health.UNREACHABLE
    assert "Something else answers" in health.detail


async def test_a_supervisor_that_refuses_the_token_is_unreachable_to_the_browser(web, viewer):
    client = Subscriber()
    async with served(ScriptedSupervisor(), token="of another sandbox") as server:
        task = web.task(server)
        async with web.console(task["id"], cookie=viewer) as socket:
            await client.subscribe(socket)
            assert (await until(client, socket, HealthFrame)).state is Health.UNREACHABLE


async def test_nobody_listening_is_unreachable_and_the_socket_stays(web, viewer):
    client = Subscriber()
    task = web.task()
    with bound_only() as port:
        web.clerk("change", task=task["id"], endpoint={"host": "127.0.0.1", "port": port, "fingerprint": "0" * 64})
        async with web.console(task["id"], cookie=viewer) as socket:
            await client.subscribe(socket)
            assert (await until(client, socket, HealthFrame)).state is Health.UNREACHABLE
            client.epoch = "e"
            await client.subscribe(socket, since=Position(epoch="e", seq=1))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(socket.recv(), 1.0)
