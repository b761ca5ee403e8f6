"""The line to a driver host ends with a host that never does."""

import socket
from collections.abc import AsyncIterator

import pytest

from sandbox_supervisor.runner import wire
from sandbox_supervisor.runner.claims import Nonsense
from sandbox_supervisor.runner.hostline import HostLine

MESSAGE = {"t": "event", "kind": "event", "data": {"kind": "session.thought", "data": {"id": "1", "text": "x" * 500}}}
OUTPUT = {"t": "event", "kind": "output", "data": {"stream": "stderr"}}


@pytest.fixture
async def line() -> AsyncIterator[tuple[HostLine, socket.socket]]:
    ours, theirs = socket.socketpair()
    line = HostLine(ours, limit=5000)
    await line.open({})
    yield line, theirs
    line.close()
    theirs.close()


async def listen(host: HostLine, heard: list[int]) -> None:
    async for _, _, payload in host.events():
        heard.append(len(payload))


async def test_a_session_that_reports_without_end_is_cut(line: tuple[HostLine, socket.socket]):
    host, agent = line
    agent.sendall(wire.pack(MESSAGE) * 20)
    heard: list[int] = []
    with pytest.raises(Nonsense, match="more was reported"):
        await listen(host, heard)
    assert len(heard) == 5000 // (len(wire.pack(MESSAGE)) - 8)


async def test_output_is_not_charged_to_the_session(line: tuple[HostLine, socket.socket]):
    host, agent = line
    agent.sendall(wire.pack(OUTPUT, b"y" * 1000) * 20)
    agent.shutdown(socket.SHUT_WR)
    heard: list[int] = []
    await listen(host, heard)
    assert heard == [1000] * 20
