"""Removing what hostile programs have left."""

import os
import socket
from pathlib import Path

import pytest

from sandbox_providers.local.removal import MOST_TOLD, remove


@pytest.fixture
def place(tmp_path):
    made = tmp_path / "sandbox"
    made.mkdir()
    return made


@pytest.fixture
def outside(tmp_path):
    made = tmp_path / "outside"
    made.mkdir()
    (made / "precious").write_text("keep")
    return made


def test_a_folder_with_everything_in_it_is_removed(place):
    (place / "a" / "b" / "c").mkdir(parents=True)
    (place / "a" / "file").write_text("x")
    os.mkfifo(place / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place / "a" / "sock"))
    (place / "a" / "b" / "hard").hardlink_to(place / "a" / "file")
    assert remove(place) == []
    assert not place.exists()


def test_what_is_not_there_is_removed_already(place):
    assert remove(place / "nothing") == []


def test_links_are_removed_and_never_followed(place, outside):
    (place / "to-folder").symlink_to(outside)
    (place / "deep").mkdir()
    (place / "deep" / "to-folder").symlink_to(outside)
    (place / "deep" / "to-file").symlink_to(outside / "precious")
    (place / "deep" / "dangling").symlink_to("nowhere")
    assert remove(place) == []
    assert (outside / "precious").read_text() == "keep"


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path, outside):
    link = tmp_path / "link"
    link.symlink_to(outside)
    assert remove(link)
    assert (outside / "precious").exists()


@pytest.mark.parametrize("mode", [0o000, 0o500, 0o400, 0o100])
def test_folders_without_rights_are_removed(place, mode):
    inner = place / "closed" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    inner.chmod(mode)
    inner.parent.chmod(mode)
    assert remove(place) == []


def test_read_only_trees_are_removed_by_a_user_like_any(tmp_path):
    """As root every right is there anyway, so this is done by somebody else when the suite runs as root."""
    place = tmp_path / "owned"
    inner = place / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    for path in (inner, inner.parent):
        path.chmod(0o500)
    code = as_somebody_else(tmp_path, place) if os.getuid() == 0 else int(bool(remove(place)))
    assert code == 0
    assert not place.exists()


def as_somebody_else(tmp_path: Path, place: Path) -> int:
    for path in (tmp_path, *[parent for parent in tmp_path.parents if str(parent).startswith("/tmp/pytest")]):
        path.chmod(path.stat().st_mode | 0o055)
    tmp_path.chmod(0o777)
    for path in (place, place / "a", place / "a" / "b", place / "a" / "b" / "file"):
        os.chown(path, 12345, 12345)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(12345)
        os.setuid(12345)
        os._exit(1 if remove(place) else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_depth_costs_neither_stack_nor_descriptors(place):
    fd = os.open(place, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    assert remove(place) == []
    assert not place.exists()


@pytest.mark.parametrize("name", [b"\xff\xfe", b"new\nline", b"-rf", b" ", b"x" * 255])
def test_names_of_any_bytes_are_removed(place, name):
    (place / "d").mkdir()
    Path(os.fsdecode(bytes(place) + b"/d/" + name)).touch()
    assert remove(place) == []


def test_many_entries_are_removed(place):
    for number in range(2000):
        (place / f"f{number}").touch()
    assert remove(place) == []


def test_what_cannot_be_removed_is_told_and_the_rest_is_removed(place, monkeypatch):
    for name in ("one", "two", "three"):
        (place / name).touch()
    unlink = os.unlink

    def refuse_two(name, **options):
        if name == "two":
            raise PermissionError(1, "Operation not permitted")
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", refuse_two)
    assert remove(place) == ["two: Operation not permitted"]
    assert [path.name for path in place.iterdir()] == ["two"]
    monkeypatch.undo()
    assert remove(place) == []


def test_no_more_is_told_than_a_report_can_hold(place, monkeypatch):
    for number in range(MOST_TOLD * 2):
        (place / f"f{number}").touch()

    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "unlink", refuse)
    assert len(remove(place)) == MOST_TOLD
