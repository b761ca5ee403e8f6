import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from sandbox_supervisor.log.artefacts import ArtefactStore, TooLarge, WrongDigest


@pytest.fixture
def store(tmp_path):
    return ArtefactStore(tmp_path / "artefacts")


async def chunks(*parts):
    for part in parts:
        yield part


def digest(data):
    return "sha256:" + sha256(data).hexdigest()


async def test_a_file_is_stored_under_its_content(store):
    assert await store.store(chunks(b"ab", b"", b"c")) == (digest(b"abc"), 3)
    assert store.path(digest(b"abc")).read_bytes() == b"abc"
    assert store.has(digest(b"abc"))
    assert store.path(digest(b"abc")).stat().st_mode & 0o077 == 0


async def test_the_same_content_is_stored_once(store):
    await store.store(chunks(b"abc"))
    await store.store(chunks(b"a", b"bc"))
    assert len(list(store.path(digest(b"abc")).parent.iterdir())) == 1
    assert store.used() == 3


async def test_other_bytes_than_announced_are_not_stored(store):
    with pytest.raises(WrongDigest):
        await store.store(chunks(b"abc"), expected=digest(b"abd"))
    assert store.used() == 0


@pytest.mark.parametrize("size", [9, 10])
async def test_up_to_the_limit_is_stored(store, size):
    assert (await store.store(chunks(b"x" * size), limit=10))[1] == size


async def test_beyond_the_limit_nothing_is_stored(store):
    with pytest.raises(TooLarge):
        await store.store(chunks(b"x" * 10, b"x"), limit=10)
    assert store.used() == 0


async def test_a_source_that_breaks_off_leaves_nothing(store):
    async def breaking():
        yield b"abc"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await store.store(breaking())
    assert store.used() == 0


async def test_reads_are_by_offset_and_name_the_whole_size(store):
    await store.store(chunks(b"0123456789"))
    assert store.read(digest(b"0123456789"), 3, 4) == (b"3456", 10)
    assert store.read(digest(b"0123456789"), 30, 4) == (b"", 10)
    assert store.read(digest(b"0123456789"), -1, -1) == (b"", 10)


@pytest.mark.parametrize(
    "name", ["", "sha256:", "sha256:" + "g" * 64, "sha256:../../etc/passwd", "md5:" + "a" * 64, "a" * 64]
)
async def test_what_is_no_digest_is_not_found(store, name):
    with pytest.raises(FileNotFoundError):
        store.read(name, 0, 1)


async def test_an_unknown_digest_is_not_found(store):
    assert not store.has(digest(b"nothing"))
    with pytest.raises(FileNotFoundError):
        store.read(digest(b"nothing"), 0, 1)


SCRIPT = """
import sys
from pathlib import Path
from sandbox_supervisor.log.artefacts import ArtefactStore
incoming = ArtefactStore(Path(sys.argv[1])).incoming()
incoming.write(b"abc")
incoming.commit()
"""


@pytest.mark.parametrize(("point", "there"), [("artefact_written", False), ("artefact_renamed", True)])
async def test_a_death_on_the_way_leaves_all_or_nothing_and_no_rest(tmp_path, point, there):
    folder = tmp_path / "artefacts"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={**os.environ, "CAISSON_CRASH_AT": point},
        check=False,
        timeout=90,
        cwd=Path.cwd(),
    )
    assert done.returncode == 137
    store = ArtefactStore(folder)
    assert store.has(digest(b"abc")) is there
    assert len(list(folder.iterdir())) == int(there)
