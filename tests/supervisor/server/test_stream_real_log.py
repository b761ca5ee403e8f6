"""The stream over the real log: across restarts of the supervisor every seq comes once, and none is missing."""

from contextlib import asynccontextmanager

from sandbox_supervisor.graph.rows import Change, NewEvent
from sandbox_supervisor.log import Log
from sandbox_supervisor.protocol.stream import Position, Resume, SnapshotFrame, SnapshotReason
from tests.fixtures.scripted_supervisor import ScriptedSupervisor, served
from tests.fixtures.stream_client import Subscriber, connected


class OverLog(ScriptedSupervisor):
    """Epoch, head and events are the log's own."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.epoch)
        self._real = log
        self.head = log.head  # type: ignore[method-assign]
        self.events = log.events  # type: ignore[method-assign]
        self.wait_past = log.wait_past  # type: ignore[method-assign]


@asynccontextmanager
async def running(folder):
    log = Log.open(folder)
    try:
        async with served(OverLog(log)) as server:
            yield log, server
    finally:
        await log.close()


async def commit(log: Log, count: int) -> None:
    await log.commit(Change(events=tuple(NewEvent(kind="session.tool", data={"title": "x"}) for _ in range(count))))


async def test_a_client_follows_through_five_restarts_of_the_supervisor(tmp_path):
    client = Subscriber()
    for boot in range(1, 6):
        async with running(tmp_path) as (log, server), connected(server) as socket:
            assert log.boot == boot
            if client.epoch is None:
                client.epoch = log.epoch
            await client.subscribe(socket)
            assert isinstance(await client.receive(socket), Resume)
            for _ in range(20):
                await commit(log, 10)
            await client.until(socket, log.head().seq)
    assert client.seqs == list(range(1, len(client.seqs) + 1))
    assert len(client.seqs) >= 1000
    assert client.snapshots == []


async def test_events_committed_while_nobody_was_connected_are_replayed(tmp_path):
    async with running(tmp_path) as (log, server):
        client = Subscriber()
        client.epoch = log.epoch
        await commit(log, 700)
        async with connected(server) as socket:
            await client.subscribe(socket)
            await client.until(socket, log.head().seq)
    assert client.seqs == list(range(1, client.upto + 1))


async def test_a_folder_that_was_replaced_is_another_epoch(tmp_path):
    async with running(tmp_path / "one") as (log, server):
        await commit(log, 3)
        old = Position(epoch=log.epoch, seq=3)
    async with running(tmp_path / "two") as (log, server), connected(server) as socket:
        client = Subscriber()
        await client.subscribe(socket, since=old)
        frame = await client.receive(socket)
    assert isinstance(frame, SnapshotFrame)
    assert (frame.reason, frame.epoch) == (SnapshotReason.EPOCH_CHANGED, log.epoch)
