"""The relay between a real supervisor's server and a browser that is played by the test."""

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from websockets.asyncio.server import serve as serve_websockets

from sandbox_providers.contract import Secret
from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.stream import Ack, Credit, Position, Subscribe
from sandbox_supervisor.server.tempo import Tempo
from sandbox_supervisor.server.tls import fingerprint, server_context
from tasks_app.live import relay as relay_module
from tasks_app.live.dial import NotYet, Upstream
from tasks_app.live.exchange import Peer
from tasks_app.live.relay import STARTS, Relay, Restless, SlowBrowser
from tests.fixtures.scripted_supervisor import TOKEN, ScriptedSupervisor, certificate, served
from tests.fixtures.waiting import eventually


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(relay_module, "QUICKEST", 0.01)
    monkeypatch.setattr(relay_module, "SLOWEST", 0.1)


class Browser(Relay):
    """A relay with everything that it showed; ``port`` is where it looks for the supervisor."""

    def __init__(self, port: int | None) -> None:
        super().__init__(dial=self.find, show=self.take)
        self.port = port
        self.shown: list[dict[str, Any]] = []
        self.settling = 0

    async def find(self) -> Upstream:
        if self.port is None:
            raise NotYet("not there yet")
        peer = Peer(host="127.0.0.1", port=self.port, fingerprint=fingerprint(certificate()))
        return Upstream(peer=peer, token=Secret(TOKEN))

    async def take(self, text: str) -> None:
        self.shown.append(json.loads(text))

    async def _settled(self) -> None:
        self.settling += 1
        await super()._settled()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.shown if frame["type"] == kind]

    @property
    def upto(self) -> int:
        return max((frame["upto"] for frame in self.of("events")), default=0)


@asynccontextmanager
async def running(browser: Browser):
    task = asyncio.create_task(browser.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


FROM_THE_START = Subscribe(since=Position(epoch="epoch-1", seq=0))


@asynccontextmanager
async def after_a_cut(supervisor: ScriptedSupervisor, browser: Browser):
    """Show five events, cut the connection and serve again, while the browser still owes its acks."""
    async with running(browser):
        await browser.hear(FROM_THE_START)
        async with served(supervisor) as server:
            browser.port = server.port
            supervisor.append_many(5)
            await eventually(lambda: browser.upto == 5)
        supervisor.append_many(5)
        async with served(supervisor, port=server.port):
            await eventually(lambda: browser.settling == 2)
            yield


async def test_after_a_cut_nothing_is_asked_for_before_the_browser_has_settled_what_it_has():
    browser = Browser(None)
    async with after_a_cut(ScriptedSupervisor(), browser):
        assert len(browser.of("resume")) == 1
        await browser.hear(Ack(seq=5))
        await eventually(lambda: browser.upto == 10)
    assert [frame["seq"] for frame in browser.of("resume")] == [0, 5]


async def test_a_browser_that_starts_anew_owes_no_acks_of_before():
    browser = Browser(None)
    async with after_a_cut(ScriptedSupervisor(), browser):
        await browser.hear(FROM_THE_START)
        await eventually(lambda: len(browser.of("resume")) == 2)
    assert [frame["seq"] for frame in browser.of("resume")] == [0, 0]


async def test_the_health_is_told_once_for_each_change():
    supervisor = ScriptedSupervisor()
    browser = Browser(None)
    async with running(browser):
        await browser.hear(Subscribe())
        await eventually(lambda: browser.of("health"))
        async with served(supervisor) as server:
            browser.port = server.port
            await eventually(lambda: browser.of("snapshot"))
            await browser.hear(Ack(seq=0))
        await eventually(lambda: len(browser.of("health")) == 3)
    assert [frame["state"] for frame in browser.of("health")] == ["waiting", "reachable", "unreachable"]


async def test_an_ack_of_what_was_never_shown_is_refused():
    browser = Browser(None)
    await browser.hear(Subscribe())
    with pytest.raises(Malformed):
        await browser.hear(Ack(seq=1))


async def test_the_browsers_credit_is_bounded_by_ours():
    supervisor = ScriptedSupervisor()
    supervisor.append_many(3000)
    async with served(supervisor, tempo=Tempo(heartbeat=0.5)) as server:
        browser = Browser(server.port)
        async with running(browser):
            await browser.hear(msgspec.structs.replace(FROM_THE_START, credit=Credit(events=10**9, bytes=10**12)))
            await eventually(lambda: browser.upto >= 1000 and browser.shown[-1]["type"] == "heartbeat")
            assert browser.upto == 1000
            await browser.hear(Ack(seq=1000))
            await eventually(lambda: browser.upto == 2000)


async def test_patience_ends_when_nothing_is_acknowledged(monkeypatch):
    supervisor = ScriptedSupervisor()
    supervisor.append()
    async with served(supervisor) as server:
        browser = Browser(server.port)
        async with running(browser):
            await browser.hear(FROM_THE_START)
            await eventually(lambda: browser.upto == 1)
            assert 0 < browser.watch() <= relay_module.PATIENCE
            monkeypatch.setattr(relay_module, "PATIENCE", -1.0)
            with pytest.raises(SlowBrowser):
                browser.watch()
            await browser.hear(Ack(seq=1))
            browser.watch()


async def test_a_browser_may_start_anew_only_so_often():
    browser = Browser(None)
    for _ in range(STARTS - 1):
        await browser.hear(Subscribe())
    with pytest.raises(Restless):
        await browser.hear(Subscribe())


def events(prev: int, upto: int, *, size: int = 10) -> str:
    made = [{"seq": seq, "data": "x" * size} for seq in range(prev + 1, upto + 1)]
    return json.dumps({"type": "events", "epoch": "epoch-1", "prev": prev, "upto": upto, "events": made})


RESUME = json.dumps({"type": "resume", "epoch": "epoch-1", "seq": 0, "head": 0})


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([RESUME, events(0, 2), events(2, 4), events(4, 6)], id="beyond-the-credit"),
        pytest.param([RESUME, events(0, 1, size=300_000)], id="above-the-frame-limit"),
        pytest.param([RESUME, "{"], id="not-json"),
        pytest.param([RESUME, '{"type":5}'], id="no-type"),
        pytest.param([RESUME, b"\xff{}"], id="not-text"),
    ],
)
async def test_a_supervisor_that_does_not_keep_the_rules_is_cut_off(frames):
    async def play(socket):
        await socket.recv()
        for frame in frames:
            await socket.send(frame)
        await socket.wait_closed()

    context = server_context(certificate())
    async with serve_websockets(play, "127.0.0.1", 0, ssl=context, close_timeout=1) as server:
        browser = Browser(server.sockets[0].getsockname()[1])
        async with running(browser):
            await browser.hear(msgspec.structs.replace(FROM_THE_START, credit=Credit(events=4, bytes=10**6)))
            await eventually(lambda: len(browser.of("health")) >= 2)
    assert [frame["state"] for frame in browser.of("health")][:2] == ["reachable", "unreachable"]
    assert browser.upto <= 4


@pytest.mark.parametrize("kind", ["task", "health", "error", "shout"])
async def test_a_supervisor_cannot_speak_for_the_control_plane(kind):
    async def play(socket):
        await socket.recv()
        await socket.send(RESUME)
        await socket.send(json.dumps({"type": kind, "state": "reachable", "code": "x", "detail": "lies"}))
        await socket.send(events(0, 1))
        await socket.wait_closed()

    context = server_context(certificate())
    async with serve_websockets(play, "127.0.0.1", 0, ssl=context, close_timeout=1) as server:
        browser = Browser(server.sockets[0].getsockname()[1])
        async with running(browser):
            await browser.hear(FROM_THE_START)
            await eventually(lambda: browser.upto == 1)
    assert "lies" not in json.dumps(browser.shown)
