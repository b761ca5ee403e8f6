"""Small files whole or not at all, and data that never touches a disk."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from sandbox_supervisor.protocol import codec, handover


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    number: int


def test_the_first_writer_wins_and_the_others_change_nothing(tmp_path):
    path = tmp_path / "value"
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: handover.write_once(path, Value(number=number)), range(8)))
    assert won.count(True) == 1
    assert handover.read(path, Value) == Value(number=won.index(True))
    assert [entry.name for entry in tmp_path.iterdir()] == ["value"]


def test_a_replaced_file_is_whole_at_every_moment(tmp_path):
    path = tmp_path / "value"
    handover.replace(path, Value(number=0))
    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(handover.replace, path, Value(number=number)) for number in range(100)]
        seen = [handover.read(path, Value) for _ in range(200)]
        for write in writing:
            write.result()
    assert None not in seen


def test_a_file_that_is_not_there_is_nothing(tmp_path):
    assert handover.read(tmp_path / "nothing", Value) is None


def test_a_damaged_file_is_malformed_and_not_nothing(tmp_path):
    (tmp_path / "value").write_text('{"number": ')
    with pytest.raises(codec.Malformed):
        handover.read(tmp_path / "value", Value)


def test_files_are_private(tmp_path):
    handover.replace(tmp_path / "value", Value(number=1))
    assert (tmp_path / "value").stat().st_mode & 0o777 == 0o600


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("keep")
    (tmp_path / "value").symlink_to(target)
    handover.replace(tmp_path / "value", Value(number=1))
    assert target.read_text() == "keep"
    assert not handover.write_once(tmp_path / "value", Value(number=2))


def test_a_memory_file_is_read_from_its_start_and_can_never_be_changed():
    fd = handover.memory_file("test", b"secret")
    try:
        assert os.read(fd, 100) == b"secret"
        for change in (lambda: os.pwrite(fd, b"x", 0), lambda: os.ftruncate(fd, 0), lambda: os.pwrite(fd, b"x", 99)):
            with pytest.raises(PermissionError):
                change()
        assert os.get_inheritable(fd) is False
    finally:
        os.close(fd)


def test_reading_to_the_end_stops_at_its_limit():
    fd = handover.memory_file("test", b"x" * 100)
    try:
        with pytest.raises(ValueError, match="more than 99"):
            handover.read_to_end(fd, 99)
        os.lseek(fd, 0, os.SEEK_SET)
        assert len(handover.read_to_end(fd, 100)) == 100
    finally:
        os.close(fd)
