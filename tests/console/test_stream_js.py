"""``static/js/stream.js`` in a real JavaScript engine against real sockets."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.fixtures.stream_page import NODE, page
from tests.fixtures.waiting import eventually

PATIENCE = 60.0

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not on this machine")


class Script:
    """A server whose connections are played by the test: ``sockets`` in order, and what each of them said."""

    def __init__(self) -> None:
        self.sockets: list[ServerConnection] = []
        self.heard: list[list[dict[str, Any]]] = []
        self.refuse: int | None = None
        self.url = ""

    async def serve(self, socket: ServerConnection) -> None:
        self.sockets.append(socket)
        heard: list[dict[str, Any]] = []
        self.heard.append(heard)
        if self.refuse is not None:
            await socket.close(self.refuse, "refused")
            return
        try:
            while True:
                heard.append(json.loads(await socket.recv()))
        except ConnectionClosed:
            return

    async def subscribed(self, number: int, times: int = 1) -> dict[str, Any]:
        """Wait until connection ``number`` (from 1) has subscribed so often; give the last subscribe."""
        await eventually(lambda: len(self.heard) >= number and len(self.subscribes(number)) >= times)
        return self.subscribes(number)[-1]

    def subscribes(self, number: int) -> list[dict[str, Any]]:
        return [frame for frame in self.heard[number - 1] if frame["type"] == "subscribe"]

    def acks(self, number: int) -> list[int]:
        return [frame["seq"] for frame in self.heard[number - 1] if frame["type"] == "ack"]

    async def say(self, number: int, **frame: Any) -> None:
        await self.sockets[number - 1].send(json.dumps(frame))


@pytest.fixture
async def script():
    made = Script()
    async with serve(made.serve, "127.0.0.1", 0, subprotocols=[Subprotocol("console.v1")], close_timeout=1) as server:
        made.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield made


def snapshot(seq: int = 0, *, epoch: str = "e", part: int = 1, parts: int = 1, **state: Any) -> dict[str, Any]:
    lists: dict[str, Any] = {"nodes": [], "attempts": [], "requests": []}
    frame = {"type": "snapshot", "epoch": epoch, "seq": seq, "head": seq, "reason": "first"}
    return frame | {"part": part, "parts": parts, "state": lists | state}


def events(prev: int, *seqs: int, upto: int | None = None, epoch: str = "e") -> dict[str, Any]:
    made = [{"seq": seq, "epoch": epoch, "kind": "node.state", "data": {}} for seq in seqs]
    return {"type": "events", "epoch": epoch, "prev": prev, "upto": upto or seqs[-1], "events": made, "merged": []}


def resume(seq: int, *, epoch: str = "e") -> dict[str, Any]:
    return {"type": "resume", "epoch": epoch, "seq": seq, "head": seq}


async def test_it_asks_for_a_snapshot_applies_and_acknowledges(script):
    async with page(script.url, credit={"events": 9, "bytes": 999}) as shown:
        assert (await script.subscribed(1)) | {"filter": None} == {
            "type": "subscribe",
            "since": None,
            "filter": None,
            "credit": {"events": 9, "bytes": 999},
        }
        await script.say(1, **snapshot(3, graph="running"))
        await script.say(1, **events(3, 4, 5))
        await eventually(lambda: script.acks(1) == [3, 5])
    assert shown.of("snapshot")[0]["state"]["graph"] == "running"
    assert shown.seqs == [4, 5]
    assert shown.states[0] == "live"


async def test_parts_of_a_snapshot_are_joined_before_they_are_shown(script):
    async with page(script.url) as shown:
        await script.subscribed(1)
        await script.say(1, **snapshot(1, part=1, parts=2, nodes=[{"key": "a"}], graph="running"))
        await script.say(1, **snapshot(1, part=2, parts=2, nodes=[{"key": "b"}]))
        await eventually(lambda: shown.of("snapshot"))
    state = shown.of("snapshot")[0]["state"]
    assert ([node["key"] for node in state["nodes"]], state["graph"]) == (["a", "b"], "running")


async def test_after_a_cut_it_resumes_where_it_stopped_and_shows_nothing_twice(script):
    async with page(script.url) as shown:
        await script.subscribed(1)
        await script.say(1, **snapshot(0))
        await script.say(1, **events(0, 1, 2))
        await eventually(lambda: shown.seqs == [1, 2])
        script.sockets[0].transport.abort()
        assert (await script.subscribed(2))["since"] == {"epoch": "e", "seq": 2}
        await script.say(2, **resume(2))
        await script.say(2, **events(2, 3))
        await eventually(lambda: shown.seqs == [1, 2, 3])
    assert len(shown.of("snapshot")) == 1
    assert "reconnecting" in shown.states
    assert shown.states[-1] == "live"


@pytest.mark.parametrize("code", [1000, 1001, 1012, 4400, 4408, 4429, 4500])
async def test_a_close_is_no_end(script, code):
    async with page(script.url) as shown:
        await script.subscribed(1)
        await script.sockets[0].close(code)
        await script.subscribed(2)
        await script.say(2, **snapshot(0))
        await eventually(lambda: shown.of("snapshot"))
    assert shown.states[0] == "reconnecting"
    assert shown.of("state")[0]["code"] == code
    assert "closed" not in shown.states


@pytest.mark.parametrize("code", [4401, 4403, 4404, 4410, 4503])
async def test_a_final_code_ends_it_and_says_why(script, code):
    script.refuse = code
    async with page(script.url) as shown:
        await eventually(lambda: "closed" in shown.states)
        state = shown.of("state")[-1]
        assert (state["code"], bool(state["detail"])) == (code, True)
        await asyncio.sleep(0.3)
    assert len(script.sockets) == 1


async def test_twenty_cuts_in_mid_stream_show_every_event_once(script):
    async with page(script.url, timing={"first": 1, "longest": 5}) as shown:
        for number in range(1, 22):
            since = (await script.subscribed(number))["since"]
            seq = since["seq"] if since else 0
            await script.say(number, **(resume(seq) if since else snapshot(0)))
            for following in range(seq + 1, seq + 13 if number <= 20 else 301):
                await script.say(number, **events(following - 1, following))
            if number <= 20:
                await eventually(partial(shown.has_reached, seq + number % 12))
                script.sockets[number - 1].transport.abort()
        await eventually(lambda: shown.seqs[-1] == 300)
    assert shown.seqs == list(range(1, 301))


@pytest.mark.parametrize(
    "frame", [pytest.param(events(2, 3), id="gap"), pytest.param(events(1, 2, epoch="other"), id="epoch")]
)
async def test_a_gap_or_another_epoch_is_answered_by_asking_for_a_fresh_snapshot(script, frame):
    async with page(script.url) as shown:
        await script.subscribed(1)
        await script.say(1, **snapshot(1))
        await script.say(1, **frame)
        assert (await script.subscribed(1, 2))["since"] is None
        await script.say(1, **events(5, 6))  # of the subscription before: not shown
        await script.say(1, **snapshot(7, epoch="other"))
        await script.say(1, **events(7, 8, epoch="other"))
        await eventually(lambda: shown.seqs == [8])
    assert len(shown.of("snapshot")) == 2


async def test_events_that_a_filter_passed_over_move_the_position(script):
    async with page(script.url, filter={"nodes": ["a"]}) as shown:
        assert (await script.subscribed(1))["filter"] == {"nodes": ["a"]}
        await script.say(1, **snapshot(0))
        await script.say(1, **events(0, 4, upto=9))
        await script.say(1, **(events(9, 9, upto=20) | {"events": []}))
        await eventually(lambda: script.acks(1) == [0, 9, 20])
        script.sockets[0].transport.abort()
        assert (await script.subscribed(2))["since"] == {"epoch": "e", "seq": 20}
    assert shown.seqs == [4]


async def test_it_can_start_at_a_position(script):
    async with page(script.url, since={"epoch": "e", "seq": 41}) as shown:
        assert (await script.subscribed(1))["since"] == {"epoch": "e", "seq": 41}
        await script.say(1, **resume(41))
        await script.say(1, **events(41, 42))
        await eventually(lambda: shown.seqs == [42])
    assert shown.of("snapshot") == []


async def test_silence_makes_it_come_back(script):
    async with page(script.url, timing={"silence": 1500}) as shown:
        await script.subscribed(1)
        await script.say(1, **snapshot(2))
        assert (await script.subscribed(2))["since"] == {"epoch": "e", "seq": 2}
    assert any(entry["detail"] == "nothing was heard" for entry in shown.of("state"))


async def test_heartbeats_that_know_more_than_was_sent_make_it_come_back(script):
    async with page(script.url):
        await script.subscribed(1)
        await script.say(1, **snapshot(2))
        await script.say(1, type="heartbeat", epoch="e", head=5)
        await script.say(1, type="heartbeat", epoch="e", head=5)
        assert (await script.subscribed(2))["since"] == {"epoch": "e", "seq": 2}


async def test_heartbeats_between_events_are_no_alarm(script):
    async with page(script.url) as shown:
        await script.subscribed(1)
        await script.say(1, **snapshot(0))
        for seq in range(1, 6):
            await script.say(1, type="heartbeat", epoch="e", head=seq)
            await script.say(1, **events(seq - 1, seq))
        await eventually(lambda: shown.seqs == [1, 2, 3, 4, 5])
    assert len(script.sockets) == 1


async def test_on_wake_the_head_is_compared_first_and_nothing_is_shown_twice(script):
    async with page(script.url) as shown:
        await script.subscribed(1)
        await script.say(1, **snapshot(0))
        await script.say(1, **events(0, 1))
        await eventually(lambda: shown.seqs == [1])
        shown.command("wake")
        assert (await script.subscribed(1, 2))["since"] == {"epoch": "e", "seq": 1}
        await script.say(1, **resume(1))
        await script.say(1, **events(1, 2))
        await eventually(lambda: shown.seqs == [1, 2])
    assert len(script.sockets) == 1


async def test_a_socket_that_died_in_sleep_is_found_out_on_wake(script):
    async with page(script.url, timing={"answer": 100}) as shown:
        await script.subscribed(1)
        await script.say(1, **snapshot(4))
        await eventually(lambda: shown.of("snapshot"))
        shown.command("wake")
        assert (await script.subscribed(2))["since"] == {"epoch": "e", "seq": 4}


async def test_a_page_that_is_slow_to_show_acknowledges_late_and_in_order(script):
    async with page(script.url, slow=30) as shown:
        await script.subscribed(1)
        await script.say(1, **snapshot(0))
        for seq in range(1, 11):
            await script.say(1, **events(seq - 1, seq))
        await eventually(lambda: script.acks(1)[-1:] == [10])
    assert script.acks(1) == list(range(11))
    assert shown.seqs == list(range(1, 11))


async def test_an_ack_is_never_sent_on_a_later_connection_than_its_events(script):
    async with page(script.url, slow=200) as shown:
        await script.subscribed(1)
        await script.say(1, **snapshot(0))
        await script.say(1, **events(0, 1))
        await eventually(lambda: shown.of("showing"))
        script.sockets[0].transport.abort()
        assert (await script.subscribed(2))["since"] == {"epoch": "e", "seq": 1}
        await script.say(2, **resume(1))
        await script.say(2, **events(1, 2))
        await eventually(lambda: script.acks(2) == [2])
    assert shown.seqs == [1, 2]


async def test_an_event_that_cannot_be_shown_leads_to_a_fresh_snapshot(script):
    async with page(script.url, broken=1) as shown:
        await script.subscribed(1)
        await script.say(1, **snapshot(0))
        await script.say(1, **events(0, 1))
        assert (await script.subscribed(2))["since"] is None
        await script.say(2, **snapshot(1))
        await eventually(lambda: len(shown.of("snapshot")) == 2)


async def test_the_health_of_the_sandbox_is_shown_while_the_socket_stays(script):
    async with page(script.url) as shown:
        await script.subscribed(1)
        await script.say(1, type="health", state="waiting", detail="not there yet")
        await script.say(1, **snapshot(0))
        await script.say(1, type="health", state="unreachable", detail="cut")
        await script.say(1, **resume(0))
        await eventually(lambda: shown.states == ["waiting", "live", "unreachable", "live"])
    assert len(script.sockets) == 1


async def test_hints_about_the_task_reach_the_page(script):
    async with page(script.url) as shown:
        await script.subscribed(1)
        await script.say(1, type="task")
        await script.say(1, type="of a later version")
        await script.say(1, **snapshot(0))
        await eventually(lambda: shown.of("snapshot"))
    assert len(shown.of("task")) == 1


async def test_closing_it_is_the_end(script):
    async with page(script.url) as shown:
        await script.subscribed(1)
        shown.command("close")
        await eventually(lambda: "closed" in shown.states)
        await asyncio.wait_for(script.sockets[0].wait_closed(), PATIENCE)
    assert len(script.sockets) == 1
