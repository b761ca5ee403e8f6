"""The control plane asks a supervisor: pinned before a byte is sent, bounded in bytes and seconds."""

import asyncio
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from typing import Any

import pytest

from sandbox_providers.contract import Secret
from sandbox_supervisor.protocol.messages import Command, CommandOutcome, CommandVerb, OutcomeCode
from sandbox_supervisor.protocol.stream import Position
from sandbox_supervisor.server.tls import fingerprint
from tasks_app.live import dial
from tasks_app.live.exchange import Bounds, Peer
from tasks_app.live.open_stream import open_stream
from tasks_app.models import Task
from tasks_app.services import tokens
from tasks_app.states import Presence
from tests.fixtures.bound_only import bound_only
from tests.fixtures.impostor import answering, impostor
from tests.fixtures.scripted_supervisor import TOKEN, ScriptedSupervisor, Served, certificate, served
from tests.fixtures.stream_client import Subscriber

PATIENCE = 60  # seconds; less than an impostor holds a connection


def upstream(port: int, *, pin: str = "", token: str = TOKEN) -> dial.Upstream:
    peer = Peer(host="127.0.0.1", port=port, fingerprint=pin or fingerprint(certificate()))
    return dial.Upstream(peer=peer, token=Secret(token))


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    async with served(ScriptedSupervisor()) as running:
        yield running


async def ask(call: Callable[..., Any], *arguments, **named):
    """Call the synchronous client while the loop serves."""
    return await asyncio.wait_for(asyncio.to_thread(call, *arguments, **named), PATIENCE)


# --- whom it speaks to -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pin", ["0" * 64, "", sha256(b"").hexdigest(), "nonsense"])
async def test_another_certificate_is_refused_before_the_bearer_is_sent(pin):
    with impostor(answering(b"{}"), pem=certificate("impostor")) as other:
        peer = Peer(host="127.0.0.1", port=other.port, fingerprint=pin)
        asked = dial.Upstream(peer=peer, token=Secret(TOKEN))
        with pytest.raises(dial.WrongInstance):
            await ask(dial.get_snapshot, asked)
    assert other.connections == 1
    assert other.received == b""


async def test_the_stream_refuses_another_certificate_before_the_bearer_is_sent():
    with impostor(pem=certificate("impostor")) as other, pytest.raises(dial.WrongInstance):
        await asyncio.wait_for(open_stream(upstream(other.port)), PATIENCE)
    assert other.connections == 1
    assert other.received == b""


async def test_the_right_certificate_is_recognised_whatever_the_case_of_its_pin(server):
    asked = upstream(server.port, pin=server.fingerprint.upper())
    assert (await ask(dial.get_snapshot, asked)).epoch == "epoch-1"


async def test_the_stream_is_followed_over_the_pinned_connection(server):
    server.supervisor.append_many(3)
    client = Subscriber()
    client.epoch = "epoch-1"
    socket = await open_stream(upstream(server.port))
    await client.subscribe(socket)
    await client.until(socket, 3)
    await socket.close()
    assert client.position == Position(epoch="epoch-1", seq=3)


@pytest.mark.parametrize("call", [dial.get_snapshot, dial.get_events, dial.get_ready])
async def test_an_old_token_is_refused_and_that_is_no_answer(server, call):
    with pytest.raises(dial.Unreachable) as refused:
        await ask(call, upstream(server.port, token="of an earlier sandbox"))
    assert "earlier" not in str(refused.value.facts)


async def test_the_stream_with_an_old_token_is_unreachable(server):
    with pytest.raises(dial.Unreachable):
        await open_stream(upstream(server.port, token="old"))


async def test_nobody_listening_is_unreachable():
    with bound_only() as port:
        with pytest.raises(dial.Unreachable):
            await ask(dial.get_snapshot, upstream(port))
        with pytest.raises(dial.Unreachable):
            await open_stream(upstream(port))


# --- what it believes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect"])
async def test_a_redirect_is_not_followed(status):
    with impostor() as target:
        location = f"Location: https://127.0.0.1:{target.port}/"
        with impostor(answering(b"", location, status=status)) as first, pytest.raises(dial.Unreachable):
            await ask(dial.get_snapshot, upstream(first.port))
        with impostor(answering(b"", location, status=status)) as first, pytest.raises(dial.Unreachable):
            await open_stream(upstream(first.port))
    assert target.connections == 0


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="not-http"),
        pytest.param(answering(b"[]"), id="not-a-snapshot"),
        pytest.param(answering(b"\xff\xfe"), id="not-json"),
        pytest.param(answering(b'{"epoch":"e"}'), id="half-a-snapshot"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", id="cut"),
        pytest.param(answering(b"", status="500 Fault"), id="fault"),
        pytest.param(answering(b"", status="404 Not Found"), id="no-problem-document"),
    ],
)
async def test_nonsense_is_unreachable_and_never_an_exception_of_another_kind(answer):
    with impostor(answer) as other, pytest.raises(dial.Unreachable):
        await ask(dial.get_snapshot, upstream(other.port))


async def test_an_answer_above_the_limit_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(dial, "LARGE", Bounds(seconds=30, bytes=1000))
    with impostor(answering(b"x" * 1001)) as other, pytest.raises(dial.TooLarge):
        await ask(dial.get_snapshot, upstream(other.port))
    with impostor(answering(b" " * 1000)) as other, pytest.raises(dial.Unreachable):
        await ask(dial.get_snapshot, upstream(other.port))


async def test_a_peer_that_never_finishes_is_given_up_at_the_deadline(monkeypatch):
    monkeypatch.setattr(dial, "LARGE", Bounds(seconds=0.3, bytes=1000))
    for answer in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"):
        with impostor(answer, hold=True) as other, pytest.raises(dial.Unreachable):
            await ask(dial.get_snapshot, upstream(other.port))


# --- what it asks ----------------------------------------------------------------------------------------------------


async def test_events_are_paged_and_filtered(server):
    for number in range(6):
        server.supervisor.append(attempt=f"a.1.{number % 2}")
    page = await ask(dial.get_events, upstream(server.port), after="epoch-1:1", limit=4, only={"attempt": "a.1.1"})
    assert ([event["seq"] for event in page["events"]], page["upto"], page["head"]) == ([2, 4], 5, 6)


async def test_a_long_poll_waits_for_the_first_event(server):
    asyncio.get_running_loop().call_later(0.1, server.supervisor.append)
    page = await ask(dial.get_events, upstream(server.port), after="epoch-1:0", wait=15)
    assert page["upto"] == 1


@pytest.mark.parametrize(("after", "code"), [("other:1", "epoch_changed"), ("epoch-1:9", "seq_ahead")])
async def test_a_position_of_another_life_is_refused_by_name(server, after, code):
    with pytest.raises(dial.SupervisorRefused) as refused:
        await ask(dial.get_events, upstream(server.port), after=after)
    assert (refused.value.status, refused.value.code) == (409, code)
    assert refused.value.facts == {"epoch": "epoch-1", "head": 0}


async def test_readiness_is_told_also_when_it_is_missing(server):
    assert (await ask(dial.get_ready, upstream(server.port)))["ready"] is True
    server.supervisor.items = {"runner": "not connected"}
    told = await ask(dial.get_ready, upstream(server.port))
    assert (told["ready"], told["readiness"]) == (False, {"runner": "not connected"})


COMMAND = Command(id="c1", verb=CommandVerb.CANCEL, actor="user:ada")


async def test_a_command_is_carried_out(server):
    server.supervisor.outcome = CommandOutcome(code=OutcomeCode.DONE, seq=5)
    assert await ask(dial.post_command, upstream(server.port), COMMAND) == server.supervisor.outcome
    assert server.supervisor.submitted == [COMMAND]


async def test_a_refused_command_brings_its_outcome_along(server):
    server.supervisor.outcome = CommandOutcome(code=OutcomeCode.REFUSED, reason="already_ended", message="too late")
    with pytest.raises(dial.SupervisorRefused) as refused:
        await ask(dial.post_command, upstream(server.port), COMMAND)
    assert (refused.value.status, refused.value.code, refused.value.message) == (409, "already_ended", "too late")
    assert refused.value.facts["outcome"]["code"] == "refused"


async def test_a_range_of_a_log_comes_with_the_headers_that_protect_the_browser(server):
    server.supervisor.outputs["a.1.1.stdout"] = b"0123456789"
    fetched = await ask(
        dial.get_attempt,
        upstream(server.port),
        "a.1.1",
        "log",
        query={"stream": "stdout"},
        headers={"Range": "bytes=2-4"},
    )
    assert (fetched.status, fetched.body) == (206, b"234")
    assert fetched.headers["content-range"] == "bytes 2-4/10"
    assert fetched.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize("attempt", ["../../v1/snapshot", "a/../../snapshot", "a?x=1", "a#b", "a b", "é"])
async def test_an_attempt_id_cannot_climb_out_of_its_path(server, attempt):
    with pytest.raises(dial.SupervisorRefused) as refused:
        await ask(dial.get_attempt, upstream(server.port), attempt, "diff/none")
    assert refused.value.status == 404


@pytest.mark.parametrize("path", ["a b", "ü/x", "a&path=b", "a%2fb", "a#b"])
async def test_a_file_path_arrives_as_it_was_meant(server, path):
    server.supervisor.files[path] = b"here"
    fetched = await ask(dial.get_attempt, upstream(server.port), "a.1.1", "files/content", query={"path": path})
    assert fetched.body == b"here"


# --- where it is -----------------------------------------------------------------------------------------------------


def task(**columns) -> Task:
    ring_id = tokens.pepper_in_use()
    return Task(id="tsk_1", nonce="n", token_key_id=ring_id, **({"presence": Presence.PRESENT} | columns))


def test_the_way_to_a_supervisor_is_what_the_task_remembers():
    endpoint = {"host": "10.0.0.7", "port": 4443, "fingerprint": "ab" * 32}
    made = dial.upstream_of(task(endpoint=endpoint))
    assert made.peer == Peer(host="10.0.0.7", port=4443, fingerprint="ab" * 32)
    assert made.token.reveal() == tokens.dial_token(task())
    assert made.token.reveal() not in repr(made)


@pytest.mark.parametrize(
    ("presence", "error"),
    [
        (Presence.NONE, dial.NotYet),
        (Presence.CREATING, dial.NotYet),
        (Presence.PRESENT, dial.NotYet),
        (Presence.LOST, dial.NoSandbox),
        (Presence.TERMINATED, dial.NoSandbox),
        (Presence.RECLAIMING, dial.Reclaimed),
        (Presence.RECLAIMED, dial.Reclaimed),
    ],
)
def test_without_a_way_the_reason_is_named(presence, error):
    with pytest.raises(error):
        dial.upstream_of(task(presence=presence))


@pytest.mark.parametrize("presence", [Presence.LOST, Presence.TERMINATED, Presence.RECLAIMING, Presence.RECLAIMED])
def test_a_sandbox_that_is_gone_is_never_dialled_although_its_endpoint_is_known(presence):
    endpoint = {"host": "127.0.0.1", "port": 1, "fingerprint": "ab" * 32}
    with pytest.raises((dial.NoSandbox, dial.Reclaimed)):
        dial.upstream_of(task(presence=presence, endpoint=endpoint))
