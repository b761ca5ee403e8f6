"""A real writer is killed at random moments: nothing that was acknowledged is lost, nothing is numbered twice."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_supervisor.log import AlreadyLocked, Log, crashpoints
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.protocol.events import Envelope
from tests.supervisor.log.writing import events

WRITER = """
import asyncio, sys
from pathlib import Path
from sandbox_supervisor.graph.rows import Change
from sandbox_supervisor.log import Log
from tests.supervisor.log.writing import event, node
async def main():
    log = Log.open(Path(sys.argv[1]))
    state = log.load()
    async def work(key):
        rev = state.nodes[key].rev if key in state.nodes else 0
        while True:
            rev += 1
            done = await log.commit(node(key, rev, rounds=rev), durable=True)
            print("state", key, rev, done.last_seq, flush=True)
            done = await log.commit(Change(events=(event(text="o" * 50),)), durable=False)
            print("output", key, rev, done.last_seq, flush=True)
    print("ready", flush=True)
    await asyncio.gather(*(work(key) for key in sys.argv[2]))
asyncio.run(main())
"""


def writer(folder, keys="abc", **environment):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), keys],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path.cwd(),
        env={**os.environ, **environment},
    )


def killed_after(process, heard):
    """Kill the writer when so many acknowledgements were heard, while it goes on; give all that it had written."""
    assert process.stdout.readline() == "ready\n"
    first = "".join(process.stdout.readline() for _ in range(heard))
    process.send_signal(signal.SIGKILL)
    rest = first + process.stdout.read()
    process.wait(timeout=90)
    process.stdout.close()
    return [line.split() for line in rest.splitlines(keepends=True) if line.endswith("\n")]


async def whole(log):
    found: list[Envelope] = []
    while page := await log.events(len(found), 500):
        found += page
    return found


async def test_no_acknowledged_fact_is_lost_over_twenty_kills(folder):
    chance = random.Random(7)
    acknowledged: dict[int, tuple[str, str, int]] = {}
    for _ in range(20):
        for kind, key, rev, seq in killed_after(writer(folder), chance.randrange(60)):
            assert acknowledged.setdefault(int(seq), (kind, key, int(rev))) == (kind, key, int(rev))
    log = Log.open(folder)
    log.verify(full=True)
    told = await whole(log)
    assert [one.seq for one in told] == list(range(1, len(told) + 1))
    assert max(acknowledged) <= len(told)
    for seq, (kind, _key, rev) in acknowledged.items():
        assert told[seq - 1].data == ({"rev": rev} if kind == "state" else {"text": "o" * 50})
    newest = {key: max(rev for kind, k, rev in acknowledged.values() if k == key and kind == "state") for key in "abc"}
    state = log.load()
    assert all(state.nodes[key].rev >= rev for key, rev in newest.items())
    assert log.boot == 21
    await log.close()


def test_the_lock_goes_with_the_process_that_held_it(folder):
    process = writer(folder)
    try:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(AlreadyLocked):
            Log.open(folder)
    finally:
        process.kill()
        process.wait(timeout=90)
        process.stdout.close()
    Log.open(folder).close_now()


LOG_POINTS = [Point.BEFORE_COMMIT, Point.AFTER_COMMIT, Point.AFTER_ANCHOR]


@pytest.mark.parametrize("point", LOG_POINTS)
@pytest.mark.parametrize("nth", [1, 2, 9])
async def test_a_death_at_a_crash_point_of_a_commit_leaves_a_sound_log(folder, point, nth):
    process = writer(folder, "a", CAISSON_CRASH_AT=f"{point}:{nth}")
    lines = process.stdout.read().splitlines()
    assert process.wait(timeout=90) == crashpoints.EXIT_STATUS
    process.stdout.close()
    acknowledged = [int(line.split()[-1]) for line in lines if line != "ready"]
    log = Log.open(folder)
    log.verify(full=True)
    head = log.head().seq
    assert max(acknowledged, default=0) <= head <= max(acknowledged, default=0) + 1
    if point is Point.BEFORE_COMMIT:
        assert head == max(acknowledged, default=0)
    await log.commit(events("it goes on"))
    await log.close()


@pytest.mark.parametrize("point", [Point.BEFORE_CHECKPOINT, Point.AFTER_CHECKPOINT])
def test_a_death_around_a_checkpoint_leaves_a_sound_log(folder, point):
    script = (
        "import sys, pathlib; from sandbox_supervisor.log import Log; Log.open(pathlib.Path(sys.argv[1])).close_now()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        env={**os.environ, "CAISSON_CRASH_AT": str(point)},
        check=False,
        timeout=90,
        cwd=Path.cwd(),
    )
    assert done.returncode == crashpoints.EXIT_STATUS
    log = Log.open(folder)
    log.verify(full=True)
    assert log.boot == 2
    log.close_now()


def test_every_crash_point_can_be_listed():
    assert {"before_commit", "after_commit", "after_effect", "before_record"} <= set(crashpoints.names())


def test_an_unarmed_crash_point_is_passed():
    for point in Point:
        crashpoints.hit(point)


def test_a_misspelt_crash_point_is_an_error_not_a_silent_test():
    done = subprocess.run(
        [sys.executable, "-c", "import sandbox_supervisor.log.crashpoints"],
        env={**os.environ, "CAISSON_CRASH_AT": "after_comit"},
        check=False,
        timeout=90,
        capture_output=True,
        cwd=Path.cwd(),
    )
    assert done.returncode == 1
