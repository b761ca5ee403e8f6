"""What the README promises: one command, from nothing to a delivered branch."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.running_product import Product, branch_commit, last_json, product

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(600)]

PROMISED = {
    *("task", "status", "flow", "repository", "remote", "base_commit", "branch", "commit", "change_request"),
    *("nodes", "attempts", "max_parallel", "rework_rounds", "events", "first_node_s", "total_s"),
    *("presence", "retain_until", "console_url", "database"),
}


@pytest.fixture(scope="module")
def place():
    folder = Path(tempfile.mkdtemp(prefix="caisson-j-"))
    with product(folder / "state") as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def result(place: Product):
    done = place.caisson("demo", "--json")
    assert done.returncode == 0, done.stderr
    return last_json(done.stdout)


def test_doctor_can_look_before_anything_was_started():
    with tempfile.TemporaryDirectory(prefix="caisson-n-") as folder:
        done = Product(Path(folder) / "state").caisson("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "known after the first ./caisson up" in done.stdout


def test_the_demo_completes_and_tells_everything_that_it_promises(result):
    assert result["status"] == "completed"
    assert set(result) == PROMISED


def test_the_commit_on_the_remote_branch_is_the_one_that_was_told(result):
    assert branch_commit(result["remote"], result["branch"]) == result["commit"]


def test_nothing_but_the_task_branch_has_moved_on_the_remote(result):
    assert branch_commit(result["remote"], "main") == result["base_commit"]


def test_agents_worked_in_parallel_and_one_was_sent_back(result):
    assert result["max_parallel"] >= 2
    assert result["rework_rounds"] >= 1
    assert set(result["nodes"].values()) == {"succeeded"}


def test_the_sandbox_is_kept_and_the_product_left_running(place, result):
    assert result["presence"] == "present"
    assert place.api(f"/tasks/{result['task']}")["presence"] == "present"


def test_no_table_of_the_control_plane_holds_the_graph(result):
    import sqlite3

    database = sqlite3.connect(f"file:{result['database']}?mode=ro", uri=True)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    ours = {name for name in tables if "_app_" in name}
    assert not {name for name in ours if any(word in name for word in ("node", "attempt", "message", "checkpoint"))}
    assert len(ours) > 10


def test_a_second_up_finds_the_first_and_prints_another_link(place, result):
    done = place.caisson("up", "--port", "1")
    assert done.returncode == 0
    assert f"was up already: {place.url}" in done.stdout
    assert "Port 1 is not used" in done.stdout
    assert "/sign-in/csl_" in done.stdout


def test_the_product_can_be_stopped_and_its_sandbox_is_found_again(place, result):
    assert place.caisson("stop").returncode == 0
    assert place.pids("sandbox_supervisor", "launch")
    done = place.caisson("run", result["remote"], "again", "--flow", "no-such-flow")
    assert done.returncode != 0  # no such flow; but the product is up again
    assert place.api(f"/tasks/{result['task']}")["presence"] == "present"
    assert place.graph(result["task"])["graph"] == "succeeded"


def test_what_lies_in_the_state_directory_is_the_owners_only(place, result):
    assert Path(result["database"]).stat().st_mode & 0o077 == 0


def test_doctor_finds_nothing_wrong(place, result):
    done = place.caisson("doctor")
    assert done.returncode == 0, done.stdout
    assert "BAD" not in done.stdout


def test_reset_removes_every_sandbox_and_the_state(place, result):
    done = place.caisson("reset", "--yes")
    assert done.returncode == 0, done.stderr
    assert not place.state.exists()
    assert place.pids("sandbox_supervisor") == []
