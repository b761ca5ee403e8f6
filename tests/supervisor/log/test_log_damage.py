"""What is stored is read as it was written, or the log refuses; never anything else."""

import asyncio
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_supervisor.log import Log, StorageCorrupt
from tests.supervisor.log.writing import command, events, everything, node

FILLER = """
import asyncio, os, sys
from pathlib import Path
from sandbox_supervisor.log import Log
from tests.supervisor.log.writing import command, events, everything, node
async def main():
    log = Log.open(Path(sys.argv[1]))
    await log.commit(everything())
    for at in range(1, 60):
        await log.commit(node("n", at, rounds=at))
        await log.commit(events("x" * 300, "y" * 300))
    await log.commit(command("c9"))
    os._exit(9)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A log whose process died with everything still in the write-ahead log."""
    folder = tmp_path_factory.mktemp("killed") / "log"
    done = subprocess.run([sys.executable, "-c", FILLER, str(folder)], check=False, timeout=60, cwd=Path.cwd())
    assert done.returncode == 9
    assert (folder / "log.sqlite3-wal").stat().st_size > 100_000
    return folder


@pytest.fixture(scope="module")
def closed(killed, tmp_path_factory):
    """The same, closed in order: everything is in the database file."""
    folder = tmp_path_factory.mktemp("closed") / "log"
    shutil.copytree(killed, folder)
    Log.open(folder).close_now()
    assert not (folder / "log.sqlite3-wal").exists()
    return folder


@pytest.fixture
def copy(tmp_path):
    def make(source):
        target = tmp_path / f"copy{random.random()}"
        shutil.copytree(source, target)
        return target

    return make


async def picture(folder):
    log = Log.open(folder)
    try:
        log.verify(full=True)
        state, seq = await log.read()
        told = await log.events(0, 500)
        return state, seq, told, await log.command("c9")
    finally:
        await log.close()


def flip(path, at, bit):
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("where", ["log.sqlite3", "log.sqlite3-wal"])
async def test_a_flipped_bit_is_refused_or_harmless(killed, closed, copy, where):
    source = closed if where == "log.sqlite3" else killed
    truth = await picture(copy(source))
    chance = random.Random(where)
    refused = 0
    for _ in range(60):
        folder = copy(source)
        flip(folder / where, chance.randrange((folder / where).stat().st_size), chance.randrange(8))
        try:
            found = await picture(folder)
        except StorageCorrupt:
            refused += 1
        else:
            assert found == truth
        shutil.rmtree(folder)
    assert refused > 10


async def test_every_flipped_byte_of_the_anchor_is_refused(closed, copy):
    folder = copy(closed)
    original = (folder / "anchor").read_bytes()
    for at in range(len(original)):
        (folder / "anchor").write_bytes(original)
        flip(folder / "anchor", at, at % 8)
        with pytest.raises(StorageCorrupt):
            Log.open(folder)


async def test_a_bit_flipped_in_the_middle_of_the_write_ahead_log_cannot_shorten_history_unnoticed(killed, copy):
    folder = copy(killed)
    wal = folder / "log.sqlite3-wal"
    flip(wal, wal.stat().st_size // 2, 3)
    damaged = wal.read_bytes()
    with pytest.raises(StorageCorrupt, match="had been committed"):
        Log.open(folder)
    assert (folder / "log.sqlite3-wal.damaged").read_bytes() == damaged


async def test_a_truncated_write_ahead_log_is_refused(killed, copy):
    folder = copy(killed)
    wal = folder / "log.sqlite3-wal"
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 3])
    with pytest.raises(StorageCorrupt):
        Log.open(folder)


async def test_a_refused_log_stays_refused(killed, copy):
    folder = copy(killed)
    (folder / "log.sqlite3-wal").unlink()
    for _ in range(3):
        with pytest.raises(StorageCorrupt):
            Log.open(folder)


async def test_a_database_put_back_from_an_earlier_day_is_refused(folder):
    log = Log.open(folder)
    await log.commit(events("monday"))
    await log.close()
    old = (folder / "log.sqlite3").read_bytes()
    log = Log.open(folder)
    await log.commit(events("tuesday"))
    await log.close()
    (folder / "log.sqlite3").write_bytes(old)
    with pytest.raises(StorageCorrupt):
        Log.open(folder)


async def test_another_logs_database_is_refused(folder, tmp_path):
    for place in (folder, tmp_path / "other"):
        log = Log.open(place)
        await log.commit(events("a"))
        await log.close()
    shutil.copy(tmp_path / "other" / "log.sqlite3", folder / "log.sqlite3")
    with pytest.raises(StorageCorrupt, match="another log"):
        Log.open(folder)


@pytest.mark.parametrize("name", ["anchor", "log.sqlite3"])
async def test_a_log_without_its_anchor_or_its_database_is_refused(closed, copy, name):
    folder = copy(closed)
    (folder / name).unlink()
    with pytest.raises(StorageCorrupt):
        Log.open(folder)


TAMPERINGS = {
    "a changed event": 'UPDATE events SET data = \'{"text":"lies"}\' WHERE seq = 5',
    "a removed event": "DELETE FROM events WHERE seq = 5",
    "a removed last event": "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)",
    "an added event": "INSERT INTO events SELECT seq + 1, at, kind, node, generation, attempt, data, chain FROM events "
    "ORDER BY seq DESC LIMIT 1",
    "a changed transition": "UPDATE changes SET body = '{}' WHERE id = 3",
    "a removed transition": "DELETE FROM changes WHERE id = (SELECT max(id) FROM changes)",
    "a changed node": "UPDATE nodes SET body = replace(body, 'waiting', 'skipped')",
    "a node put back": "UPDATE nodes SET rev = rev - 1",
    "a renamed node": "UPDATE nodes SET key = 'z' WHERE key = 'a'",
    "a wish declared done": "UPDATE outbox SET done = 1",
}


@pytest.mark.parametrize("what", TAMPERINGS)
async def test_tampering_is_refused_at_the_next_start(closed, copy, what):
    folder = copy(closed)
    connection = sqlite3.connect(folder / "log.sqlite3")
    connection.execute(TAMPERINGS[what])
    connection.commit()
    connection.close()
    with pytest.raises(StorageCorrupt):
        Log.open(folder)


@pytest.mark.parametrize("table", ["nodes", "attempts", "timers", "outbox", "commands", "graph"])
async def test_a_row_that_vanished_is_found_by_the_full_check(closed, copy, table):
    folder = copy(closed)
    connection = sqlite3.connect(folder / "log.sqlite3")
    connection.execute(f"DELETE FROM {table} WHERE rowid = (SELECT min(rowid) FROM {table})")  # noqa: S608
    connection.commit()
    connection.close()
    log = Log.open(folder, damaged_ok=True)
    with pytest.raises(StorageCorrupt):
        log.verify(full=True)
    await log.close()


async def test_a_damaged_log_can_be_read_and_refuses_to_be_written(closed, copy):
    folder = copy(closed)
    connection = sqlite3.connect(folder / "log.sqlite3")
    connection.execute('UPDATE events SET data = \'{"text":"lies"}\' WHERE seq = 5')
    connection.commit()
    connection.close()
    log = Log.open(folder, damaged_ok=True)
    assert "event 5" in (log.damage or "")
    assert len(await log.events(0, 4)) == 4
    assert log.load().nodes["n"].rounds == 59
    with pytest.raises(StorageCorrupt, match="event 5"):
        await log.commit(events("more"))
    await log.close()
    with pytest.raises(StorageCorrupt):
        Log.open(folder)


async def test_each_opening_of_a_damaged_log_is_counted_lest_its_word_be_taken_for_old(closed, copy):
    folder = copy(closed)
    connection = sqlite3.connect(folder / "log.sqlite3")
    before = int(connection.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()[0])
    connection.execute(TAMPERINGS["a changed event"])
    connection.commit()
    connection.close()
    boots = []
    for _ in range(3):
        log = Log.open(folder, damaged_ok=True)
        boots.append(log.boot)
        await log.close()
    assert boots == [before + 1, before + 2, before + 3]


async def test_a_sound_log_has_no_damage(log):
    await log.commit(everything())
    await log.commit(node("n", 1))
    await log.commit(command("c2"))
    log.verify(full=True)
    log.verify(full=False)
    assert log.damage is None
    await asyncio.sleep(0)
