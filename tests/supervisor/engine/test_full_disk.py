"""A supervisor whose disk is really full: a small tmpfs in a mount namespace of the test's own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.engine.full_disk import LINES
from tests.supervisor.engine.scenario import ROOT

UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
MOUNT = 'mount -t tmpfs -o size=96m tmpfs "$0" && exec "$@"'


def play(scene: str, tmp_path: Path) -> dict[str, Any]:
    """Play a scene with a tmpfs as its only place to write; give what it saw."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare program")
    place = tmp_path / "disk"
    place.mkdir()
    program = [sys.executable, "-m", "tests.supervisor.engine.full_disk", scene, str(place)]
    command = [*UNSHARE, "sh", "-c", MOUNT, str(place), *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110, cwd=ROOT)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"no tmpfs may be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_on_a_full_disk_nothing_starts_and_output_waits_until_there_is_space_again(tmp_path):
    seen = play("waits_and_goes_on", tmp_path)
    assert (seen["started"], seen["talk"]) == (["first.1.1", "talk.1.1"], "running")
    assert (seen["failure"], seen["ready"]) == (None, False)
    assert (seen["graph"], seen["attempts"]) == ("succeeded", ["first.1.1", "second.1.1", "talk.1.1"])
    assert seen["output"] == [LINES * 16, 0]
    assert seen["told"] == [1, 1]


def test_past_the_grace_the_storage_has_failed_and_a_rerun_works_once_there_is_space(tmp_path):
    seen = play("fails_after_the_grace", tmp_path)
    assert (seen["code"], seen["graph"], seen["ready"]) == ("storage_failed", "failed", False)
    assert (seen["stopped"], seen["after"], seen["left"]) == (["cancelled", "cancelled"], None, [])
    assert seen["rerun"] == ["done", "succeeded"]


def test_without_space_for_a_single_transition_heartbeats_go_on_and_a_stop_still_ends_every_tree(tmp_path):
    seen = play("stops_even_without_a_byte", tmp_path)
    assert (seen["code"], seen["refused"], seen["left"]) == ("storage_failed", "storage_full", [])
    assert seen["meanwhile"] in ("running", "paused")
    assert seen["end"][0] == "cancelled"
    assert seen["end"][1] in ("interrupted", "cancelled")


def test_a_supervisor_that_comes_back_to_a_disk_without_a_byte_is_readable_says_so_and_goes_on_with_space(tmp_path):
    seen = play("comes_back_to_a_full_disk", tmp_path)
    assert seen["told"] == [2, "failed", "storage_failed", False]
    assert (seen["refused"], seen["read"], seen["events"]) == ("storage_full", ["running"], True)
    assert seen["again"] == [2, "succeeded", ["slow.1.1", "slow.1.2"]]


def test_a_supervisor_without_space_to_make_its_log_waits_for_it(tmp_path):
    assert play("begins_once_there_is_space", tmp_path) == {"waits": True, "again": [1, "succeeded"]}


@pytest.mark.parametrize("scene", ["merge_meets_it", "kept_merge_meets_it", "bundle_meets_it"])
def test_what_git_cannot_do_for_lack_of_space_is_blamed_on_that(tmp_path, scene):
    assert play(scene, tmp_path) == {"failure": ["infra", "no_space"]}
