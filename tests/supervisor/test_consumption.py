"""What a folder and a process are found to take."""

import os
import signal
import subprocess
import sys

from sandbox_supervisor import consumption
from sandbox_supervisor.consumption import disk_of, memory_of

MIB = 1024 * 1024
HOLD = "held = b'x' * (40 * 1024 * 1024); print('held', flush=True); input()"


def test_everything_below_a_folder_counts_with_the_blocks_it_takes(tmp_path):
    empty = disk_of(tmp_path)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_bytes(os.urandom(3 * MIB))
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(1024 * MIB)
    assert 3 * MIB <= disk_of(tmp_path) - empty < 4 * MIB


def test_a_file_with_two_names_counts_once_and_a_link_leads_nowhere(tmp_path):
    outside, place = tmp_path / "outside", tmp_path / "place"
    outside.mkdir()
    place.mkdir()
    (outside / "big").write_bytes(os.urandom(8 * MIB))
    (place / "one").write_bytes(os.urandom(MIB))
    (place / "two").hardlink_to(place / "one")
    (place / "away").symlink_to(outside)
    (place / "round").symlink_to(place)
    assert MIB <= disk_of(place) < 2 * MIB


def test_what_is_left_out_is_left_out_at_the_top_only(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_bytes(os.urandom(8 * MIB))
    (tmp_path / "log" / "work").mkdir(parents=True)
    (tmp_path / "log" / "work" / "file").write_bytes(os.urandom(MIB))
    assert MIB <= disk_of(tmp_path, without=frozenset({"work"})) < 2 * MIB


def test_a_tree_deeper_than_any_path_may_be_long_is_counted_as_far_as_it_can_be_named(tmp_path):
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(60):  # 200 characters each: three times what a path may have
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (tmp_path / "file").write_bytes(os.urandom(MIB))
    assert disk_of(tmp_path) >= MIB
    subprocess.run(["rm", "-rf", str(tmp_path / ("d" * 200))], check=True)


def test_a_folder_with_more_than_is_looked_at_is_counted_as_far_as_that(tmp_path, monkeypatch):
    for number in range(50):
        (tmp_path / str(number)).write_bytes(b"x")
    whole = disk_of(tmp_path)
    monkeypatch.setattr(consumption, "ENTRIES_LIMIT", 10)
    assert disk_of(tmp_path) * 5 == whole


def test_memory_is_what_a_process_has_for_itself_and_one_that_is_gone_has_none():
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGSTOP)  # or it might still take a page more between two looks
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert 40 * MIB <= memory_of([process.pid]) < 80 * MIB
        assert memory_of([process.pid, process.pid]) == 2 * memory_of([process.pid])
        process.send_signal(signal.SIGCONT)
        process.communicate("\n")
    assert memory_of([process.pid]) == 0
