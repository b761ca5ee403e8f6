"""A disk that is really full: a small tmpfs in a mount namespace of the test's own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
MOUNT = 'mount -t tmpfs -o size={size} tmpfs "$0" && exec "$@"'

PRELUDE = """
import asyncio, json, os, sys
from pathlib import Path
from sandbox_supervisor.log import Log, StorageFull
from tests.supervisor.log.writing import events, node
root = Path(sys.argv[1])
def fill(piece=65536):
    with open(root / "filler", "ab", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * piece)
        except OSError:
            pass
def tell(**facts): print(json.dumps(facts), flush=True)
"""


def on_small_disk(tmp_path, script, size="64m"):
    """Run a script with a tmpfs of ``size`` as its only place to write; give what it told."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare program")
    place = tmp_path / "disk"
    place.mkdir()
    body = PRELUDE + script
    command = [*UNSHARE, "sh", "-c", MOUNT.format(size=size), str(place), sys.executable, "-c", body, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90, cwd=Path.cwd())
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no tmpfs may be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    facts: dict[str, object] = {}
    for line in done.stdout.splitlines():
        facts |= json.loads(line)
    return facts


FULL = """
async def main():
    log = Log.open(root / "log")
    await log.commit(node("a", 1))
    fill()
    refused = 0
    rev = 1
    for at in range(400):
        try:
            await log.commit(events("o" * 9000), durable=False)
        except StorageFull:
            refused += 1
            break
    for at in range(20):
        rev += 1
        await log.commit(node("a", rev))
    kinds = [one.kind for one in await log.events(0, 500)]
    tell(refused=refused, full=log.full, told=kinds.count("storage.full"), rev=log.load().nodes["a"].rev,
         ballast=(root / "log/ballast").exists(), waits=not await log.wait_space(0.05))
    log.verify(full=True)
    (root / "filler").unlink()
    tell(again=await log.wait_space(20))
    await log.commit(events("output again"), durable=False)
    kinds = [one.kind for one in await log.events(max(0, log.head().seq - 5), 500)]
    tell(recovered="storage.recovered" in kinds, full_after=log.full, held=(root / "log/ballast").exists())
    log.verify(full=True)
    await log.close()
asyncio.run(main())
"""


def test_a_full_disk_is_written_down_stops_output_and_heals(tmp_path):
    facts = on_small_disk(tmp_path, FULL)
    assert facts["refused"] == 1
    assert (facts["full"], facts["told"], facts["ballast"], facts["waits"]) == (True, 1, False, True)
    assert facts["rev"] == 21
    assert (facts["again"], facts["recovered"], facts["full_after"], facts["held"]) == (True, True, False, True)


EXHAUSTED = """
async def main():
    log = Log.open(root / "log")
    await log.commit(node("a", 1))
    fill()
    acknowledged = 1
    for at in range(20000):
        try:
            await log.commit(node("a", acknowledged + 1, result="r" * 20000))
            acknowledged += 1
            fill()
        except StorageFull:
            break
    readable = len(await log.events(0, 5))
    tell(acknowledged=acknowledged, stored=log.load().nodes["a"].rev, readable=readable)
    os._exit(0)
asyncio.run(main())
"""


def test_when_even_the_ballast_is_used_up_commits_are_refused_and_nothing_acknowledged_is_lost(tmp_path):
    facts = on_small_disk(tmp_path, EXHAUSTED, size="40m")
    assert facts["acknowledged"] == facts["stored"] < 20000
    assert facts["readable"] == min(5, facts["acknowledged"] + 1)


RESTART = """
async def main():
    log = Log.open(root / "log")
    await log.commit(node("a", 1))
    await log.close()
    fill()
    log = Log.open(root / "log")
    await log.commit(node("a", 2))
    kinds = [one.kind for one in await log.events(0, 500)]
    tell(boot=log.boot, rev=log.load().nodes["a"].rev, full=log.full, told=kinds.count("storage.full"))
    log.verify(full=True)
    await log.close()
asyncio.run(main())
"""


def test_a_supervisor_can_start_on_a_full_disk(tmp_path):
    facts = on_small_disk(tmp_path, RESTART)
    assert facts == {"boot": 2, "rev": 2, "full": True, "told": 1}


SMALL = """
async def main():
    log = Log.open(root / "log")
    await log.commit(node("a", 1))
    tell(ballast=(root / "log/ballast").exists(), full=log.full)
    await log.close()
asyncio.run(main())
"""


def test_on_a_disk_too_small_for_a_ballast_the_log_works_without(tmp_path):
    assert on_small_disk(tmp_path, SMALL, size="8m") == {"ballast": False, "full": False}


UNGUARDED = """
async def main():
    log = Log.open(root / "log")
    rev = 1
    await log.commit(node("a", rev))
    fill()
    try:
        while rev < 20000:
            await log.commit(node("a", rev + 1, result="r" * 20000))
            rev += 1
    except StorageFull:
        tell(full=log.full, since=log.full_since is not None, scarce=log.is_scarce())
        tell(waits=not await log.wait_space(0.05))
    tell(ballast=(root / "log/ballast").exists())
    (root / "filler").unlink()
    tell(again=await log.wait_space(20))
    await log.commit(node("a", rev + 1))
    tell(rev=log.load().nodes["a"].rev == rev + 1, full_after=log.full)
    log.verify(full=True)
    await log.close()
asyncio.run(main())
"""


def test_a_full_disk_too_small_for_a_ballast_makes_everybody_wait_too_and_heals(tmp_path):
    facts = on_small_disk(tmp_path, UNGUARDED, size="24m")
    assert (facts["full"], facts["since"], facts["scarce"], facts["waits"]) == (True, True, True, True)
    assert (facts["ballast"], facts["again"], facts["rev"], facts["full_after"]) == (False, True, True, False)


OUTPUT = """
async def main():
    log = Log.open(root / "log")
    out = log.outputs.open("a.1.1")
    out.write("stdout", b"before")
    fill()
    produced = 6
    try:
        for at in range(600):
            out.write("stdout", b"y" * 65536)
            produced += 65536
    except OSError as error:
        tell(errno=error.errno)
    (root / "filler").unlink()
    out.write("stdout", b"z" * 65536)
    piece = log.outputs.read("a.1.1", "stdout", produced, 65536)
    tell(same=piece.data == b"z" * 65536, offset=piece.offset == produced, size=piece.size == produced + 65536)
    await log.close()
asyncio.run(main())
"""


def test_output_that_did_not_fit_can_be_written_again_once_there_is_space(tmp_path):
    facts = on_small_disk(tmp_path, OUTPUT, size="40m")
    assert facts["errno"] == 28
    assert facts["same"]
    assert facts["offset"]
    assert facts["size"]


WITHOUT_A_BYTE = """
def boots():
    log = Log.open(root / "log")
    found = [log.boot, log.full, log.load().nodes["a"].rev, log.durable_head().seq > 0]
    log.close_now()
    return found
async def main():
    log = Log.open(root / "log")
    (root / "log/ballast").unlink()
    await log.commit(node("a", 1))
    fill()
    log.close_now()
    fill(1)
    tell(first=boots(), second=boots())
    (root / "filler").unlink()
    log = Log.open(root / "log")
    await log.commit(node("a", 2))
    log.verify(full=True)
    tell(boot=log.boot, rev=log.load().nodes["a"].rev)
    await log.close()
asyncio.run(main())
"""


def test_a_log_opens_and_counts_its_boots_on_a_disk_without_a_byte(tmp_path):
    facts = on_small_disk(tmp_path, WITHOUT_A_BYTE)
    assert (facts["first"], facts["second"]) == ([2, True, 1, True], [3, True, 1, True])
    assert (facts["boot"], facts["rev"]) == (4, 2)


NEW = """
fill()
try:
    Log.open(root / "log")
except StorageFull:
    tell(full=True)
(root / "filler").unlink()
log = Log.open(root / "log")
tell(boot=log.boot)
log.close_now()
"""


def test_without_space_no_log_is_made_and_with_space_it_is(tmp_path):
    assert on_small_disk(tmp_path, NEW) == {"full": True, "boot": 1}
