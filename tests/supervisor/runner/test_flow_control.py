"""A flood slows its process down; it grows no memory and holds up nobody else."""

import asyncio
import resource
from pathlib import Path

from sandbox_supervisor.runner import service
from sandbox_supervisor.runner.link import SessionEventKind
from tests.supervisor.runner.stage import ATTEMPT, GIVE_UP, Stage, rss, running, scripted, shell, token, until

MIB = 1024 * 1024


async def read_all(at: Stage, attempt: str = ATTEMPT) -> int:
    size = 0
    async for event in at.link.session(attempt):
        size += len(event.payload)
    return size


async def test_a_hundred_megabytes_pass_through_whole_and_no_memory_grows(bare_stage: Stage):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await bare_stage.begin(shell(f"head -c {100 * MIB} /dev/zero"))
    async with asyncio.timeout(60):
        assert await read_all(bare_stage) == 100 * MIB
    assert rss(bare_stage.process.pid) < 96 * MIB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


async def test_a_process_that_nobody_reads_waits_in_its_write(bare_stage: Stage):
    await bare_stage.begin(shell(f"head -c {50 * MIB} /dev/zero; echo done > finished"))
    inbox = bare_stage.link._inboxes[ATTEMPT]
    await until(lambda: inbox.waiting >= service.WINDOW)
    waiting = inbox.waiting
    assert (await bare_stage.sh("echo other", "other.1.1")).output() == b"other\n"
    assert inbox.waiting == waiting < service.WINDOW + MIB
    assert not (bare_stage.attempt().tree / "finished").exists()
    async with asyncio.timeout(60):
        assert await read_all(bare_stage) == 50 * MIB
    assert (bare_stage.attempt().tree / "finished").exists()


async def test_a_process_that_nobody_reads_can_still_be_stopped(bare_stage: Stage):
    mark = token()
    await bare_stage.begin(shell(f"yes {mark}"))
    await until(lambda: bare_stage.link._inboxes[ATTEMPT].waiting >= service.WINDOW)
    async with asyncio.timeout(GIVE_UP):
        await bare_stage.link.stop(ATTEMPT, kill=False)
    assert running(f"yes\0{mark}") == []
    assert (await bare_stage.rest()).exit["outcome"] == "cancelled"


async def test_an_agent_that_nobody_reads_can_still_be_cancelled(bare_stage: Stage):
    await bare_stage.begin(scripted({"flood": {"bytes": 50 * MIB}}, {"sleep": 600}))
    await until(lambda: bare_stage.link._inboxes[ATTEMPT].waiting >= service.WINDOW)
    async with asyncio.timeout(GIVE_UP):
        await bare_stage.link.stop(ATTEMPT, kill=False)
    assert (await bare_stage.rest()).exit["outcome"] == "cancelled"


async def test_the_supervisor_goes_while_a_process_waits_in_its_write(bare_stage: Stage):
    mark = token()
    await bare_stage.begin(shell(f"yes {mark}"))
    await until(lambda: bare_stage.link._inboxes[ATTEMPT].waiting >= service.WINDOW)
    await bare_stage.link.close()
    async with asyncio.timeout(GIVE_UP):
        await bare_stage.gate.accept()
    assert running(f"yes\0{mark}") == []


async def test_very_many_lines_keep_their_order(bare_stage: Stage):
    await bare_stage.begin(shell("seq 1 300000"))
    ran = await bare_stage.rest()
    assert ran.output() == b"".join(b"%d\n" % number for number in range(1, 300_001))


async def test_output_held_open_by_a_stranger_does_not_hold_up_the_end(bare_stage: Stage):
    """A process outside the tree was given the pipe: the tree is empty, so the attempt has ended."""
    await bare_stage.begin(shell("echo $$; while ! [ -e go-on ]; do sleep 0.02; done"))
    said = await bare_stage.first(lambda event: event.kind is SessionEventKind.OUTPUT)
    with Path(f"/proc/{int(said.payload)}/fd/1").open("wb"):
        (bare_stage.attempt().tree / "go-on").touch()
        assert (await bare_stage.rest()).exit["outcome"] == "ok"
