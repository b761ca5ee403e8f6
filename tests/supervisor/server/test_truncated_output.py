"""Output whose middle the cap has dropped, from a real store through the real server."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandbox_supervisor.log.outputs import OutputStore
from sandbox_supervisor.server.facade import LogSlice
from tests.fixtures.scripted_supervisor import TOKEN, ScriptedSupervisor, served
from tests.fixtures.stream_client import PATIENCE, trusting

CAP = 2 * 1024 * 1024  # of both streams
HEAD, SHARE = CAP // 8, CAP // 2
SAID = b"".join(b"%015d\n" % number for number in range(200_000))
DROPPED = len(SAID) - SHARE
TAIL = HEAD + DROPPED  # where it begins


class Keeping(ScriptedSupervisor):
    """Reads output from a store."""

    def __init__(self, store: OutputStore) -> None:
        super().__init__()
        self._store = store

    async def attempt_log(self, attempt: str, stream: str, offset: int, length: int) -> LogSlice:
        part = self._store.read(attempt, stream, offset, length)
        return LogSlice(data=part.data, offset=part.offset, size=part.size, dropped=part.dropped, head=part.head)


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    store = OutputStore(tmp_path / "outputs", cap=CAP)
    output = store.open("a.1.1")
    for at in range(0, len(SAID), 65536):
        output.write("stdout", SAID[at : at + 65536])
    output.close()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        served(Keeping(store)) as server,
        httpx.AsyncClient(
            verify=trusting(), base_url=server.https, headers=headers, trust_env=False, timeout=PATIENCE
        ) as client,
    ):
        yield client


async def test_the_whole_is_what_is_left_of_it_each_byte_once(http):
    answer = await http.get("/v1/attempts/a.1.1/log")
    assert answer.headers["x-caisson-dropped-bytes"] == str(DROPPED)
    assert answer.content == SAID[:HEAD] + SAID[TAIL:]


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=10-19", 10, 20),
        ("bytes=0-", 0, HEAD),
        (f"bytes={HEAD - 5}-{TAIL + 5}", HEAD - 5, HEAD),
        (f"bytes={HEAD}-{TAIL + 99}", TAIL, TAIL + 100),
        (f"bytes={TAIL + 7}-{TAIL + 9}", TAIL + 7, TAIL + 10),
        ("bytes=-16", len(SAID) - 16, len(SAID)),
        (f"bytes=-{SHARE}", TAIL, len(SAID)),
    ],
)
async def test_a_range_counts_in_what_was_produced_and_never_reaches_over_the_gap(http, asked, start, stop):
    answer = await http.get("/v1/attempts/a.1.1/log", headers={"Range": asked})
    assert (answer.status_code, answer.content) == (206, SAID[start:stop])
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(SAID)}"


async def test_a_range_of_what_was_dropped_only_cannot_be_given(http):
    answer = await http.get("/v1/attempts/a.1.1/log", headers={"Range": f"bytes={HEAD}-{HEAD + 9}"})
    assert (answer.status_code, answer.json()["size"]) == (416, len(SAID))
