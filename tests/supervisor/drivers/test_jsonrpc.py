"""JSON-RPC over lines: bounded, tolerant where real agents need it, strict elsewhere."""

import asyncio
import json
from typing import Any

import pytest

from sandbox_supervisor.drivers import jsonrpc
from sandbox_supervisor.drivers.jsonrpc import Broken, Ended, Peer, RpcError, lines, parse
from tests.supervisor.runner.stage import until


def reader_of(*chunks: bytes, end: bool = True) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    for chunk in chunks:
        reader.feed_data(chunk)
    if end:
        reader.feed_eof()
    return reader


async def all_lines(*chunks: bytes, limit: int = 100) -> list[bytes]:
    return [line async for line in lines(reader_of(*chunks), limit)]


class Ends:
    """A peer whose other end is the test: what it writes is in ``written``."""

    def __init__(self, *, junk: bool = True) -> None:
        self.reader = asyncio.StreamReader()
        self.written: list[dict[str, Any]] = []
        self.notified: list[tuple[str, dict[str, Any]]] = []
        self.junk: list[bytes] = []
        self.release = asyncio.Event()
        self.peer = Peer(
            self.reader, self._write, on_request=self._requested, on_notification=self._notified,
            on_junk=self._junk if junk else None,
        )  # fmt: skip

    async def _write(self, data: bytes) -> None:
        self.written.append(json.loads(data))

    async def _requested(self, method: str, params: dict[str, Any]):
        if method == "wait":
            await self.release.wait()
        if method == "fail":
            raise RpcError(-32602, "no")
        if method == "bug":
            raise KeyError("x")
        return {"echo": params}

    async def _notified(self, method: str, params: dict[str, Any]) -> None:
        self.notified.append((method, params))

    async def _junk(self, line: bytes) -> None:
        self.junk.append(line)

    def feed(self, *messages: dict[str, Any] | bytes) -> None:
        for message in messages:
            self.reader.feed_data(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    async def run(self) -> None:
        self.reader.feed_eof()
        async with asyncio.timeout(5):
            await self.peer.run()


async def test_lines_are_found_across_chunks():
    assert await all_lines(b"a", b"b\nc", b"\n\nd") == [b"ab", b"c", b"", b"d"]


async def test_a_line_at_the_limit_is_a_line_and_one_beyond_it_breaks_the_protocol():
    assert await all_lines(b"x" * 100 + b"\n") == [b"x" * 100]
    with pytest.raises(Broken) as broken:
        await all_lines(b"x" * 101, b"y" * 10)
    assert broken.value.code == "line_too_long"


async def test_a_line_that_never_ends_is_not_collected_beyond_the_limit():
    reader = asyncio.StreamReader()
    for _ in range(100):
        reader.feed_data(b"x" * 100)
    async with asyncio.timeout(5):
        with pytest.raises(Broken):  # though the stream goes on
            await anext(lines(reader, 1000))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": "\\ud83d"}', {"a": "?"}),
        ('{"a": "\U0001f600"}'.encode(), {"a": "\U0001f600"}),
        (b'{"a": "\\u001b[31m"}', {"a": "\x1b[31m"}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_texts_that_real_agents_cut_in_the_middle_are_read(line: bytes, value: dict[str, Any]):
    assert parse(line) == value


@pytest.mark.parametrize("line", [b"", b"x", b"[1]", b"3", b'{"a":', b"{" * 100_000, b"\0", b'{"a": ' + b"[" * 100_000])
def test_what_is_no_object_is_nothing(line: bytes):
    assert parse(line) is None


async def test_requests_are_answered_and_answers_find_their_request():
    ends = Ends()
    asking = asyncio.create_task(ends.peer.request("hello", {"x": 1}))
    await asyncio.sleep(0)
    ends.feed({"id": 9, "method": "echo", "params": {"y": 2}}, {"id": 1, "result": "hi"})
    running = asyncio.create_task(ends.peer.run())
    assert await asyncio.wait_for(asking, 5) == "hi"
    await asyncio.sleep(0)
    ends.reader.feed_eof()
    await running
    assert ends.written[0] == {"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"x": 1}}
    assert ends.written[1] == {"jsonrpc": "2.0", "id": 9, "result": {"echo": {"y": 2}}}


async def test_errors_become_exceptions_and_exceptions_errors():
    ends = Ends()
    asking = asyncio.create_task(ends.peer.request("hello", {}))
    await asyncio.sleep(0)
    ends.feed({"id": 1, "error": {"code": 429, "message": "slow down", "data": {"a": 1}}})
    running = asyncio.create_task(ends.peer.run())
    with pytest.raises(RpcError, match="slow down") as error:
        await asyncio.wait_for(asking, 5)
    assert (error.value.code, error.value.data) == (429, {"a": 1})
    ends.feed({"id": 3, "method": "fail"}, {"id": "four", "method": "bug"})
    await until(lambda: len(ends.written) >= 3, 5)
    assert ends.written[1] == {"jsonrpc": "2.0", "id": 3, "error": {"code": -32602, "message": "no"}}
    assert (ends.written[2]["id"], ends.written[2]["error"]["code"]) == ("four", jsonrpc.INTERNAL_ERROR)
    ends.reader.feed_eof()
    await running


async def test_open_requests_fail_when_the_stream_ends_and_new_ones_at_once():
    ends = Ends()
    asking = asyncio.create_task(ends.peer.request("hello", {}))
    await asyncio.sleep(0)
    await ends.run()
    with pytest.raises(Ended):
        await asking
    with pytest.raises(Ended):
        await ends.peer.request("again", {})


async def test_an_answer_that_nobody_waits_for_and_strange_messages_are_ignored():
    ends = Ends()
    ends.feed({"id": 77, "result": 1}, {"jsonrpc": "1.0"}, {"id": None}, {"method": 3}, {"id": "x", "result": 1})
    ends.feed({"method": "note", "params": [1, 2]})
    await ends.run()
    assert ends.notified == [("note", {})]
    assert ends.written == []


async def test_a_request_times_out():
    with pytest.raises(TimeoutError):
        await Ends().peer.request("hello", {}, timeout=0.01)


async def test_banners_before_the_first_answer_are_tolerated_up_to_a_number():
    ends = Ends()
    ends.feed(*[b"npm banner\n"] * jsonrpc.JUNK_LIMIT)
    await ends.run()
    assert len(ends.junk) == jsonrpc.JUNK_LIMIT
    more = Ends()
    more.feed(*[b"npm banner\n"] * (jsonrpc.JUNK_LIMIT + 1))
    with pytest.raises(Broken):
        await more.run()


async def test_a_line_that_begins_like_json_is_never_a_banner():
    ends = Ends()
    ends.feed(b'{"half": \n')
    with pytest.raises(Broken) as broken:
        await ends.run()
    assert broken.value.code == "bad_json"


async def test_strictness_can_be_turned_on():
    ends = Ends()
    ends.peer.be_strict()
    ends.feed(b"banner\n")
    with pytest.raises(Broken):
        await ends.run()


async def test_requests_beyond_the_limit_are_refused_not_collected():
    ends = Ends()
    running = asyncio.create_task(ends.peer.run())
    ends.feed(*({"id": number, "method": "wait"} for number in range(jsonrpc.OPEN_LIMIT + 5)))
    await until(lambda: len(ends.written) >= 5, 5)
    assert {message["error"]["code"] for message in ends.written} == {jsonrpc.TOO_MANY}
    ends.release.set()
    await until(lambda: len(ends.written) >= jsonrpc.OPEN_LIMIT + 5, 5)
    ends.reader.feed_eof()
    await running
