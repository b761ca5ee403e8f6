"""What the start script says when something is wrong: what, where, and how to go on; and nothing is left behind."""

import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.running_product import SCRIPT, Product, last_json, product, repository

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def place():
    folder = Path(tempfile.mkdtemp(prefix="caisson-b-"))
    with product(folder / "state") as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


def refused(place: Product, *arguments: str) -> str:
    done = place.caisson(*arguments)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_port_that_is_taken_is_named_with_the_way_out(place):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        said = refused(place, "up", "--port", str(other.getsockname()[1]))
    assert "cannot be used" in said
    assert "--port" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_start_that_is_interrupted_leaves_no_process(place, number):
    begun = place.begin("up")
    assert begun.stderr is not None
    while "starting" not in (line := begun.stderr.readline()):
        assert line, "up has ended before it started anything"
    begun.send_signal(number)
    said = begun.communicate(timeout=90)[1]
    assert begun.returncode == 130, said
    assert "Traceback" not in said
    assert place.pids() == []


def test_a_product_that_is_being_stopped_is_waited_for(place):
    begun = place.begin("up")
    assert begun.stdout is not None
    while "sandboxes stay" not in (line := begun.stdout.readline()):
        assert line, "up has ended before it was there"
    begun.send_signal(signal.SIGTERM)
    assert begun.stderr is not None
    while "stopping" not in (line := begun.stderr.readline()):
        assert line, "up has ended without a word"
    found = place.caisson("doctor")
    assert found.returncode in {0, 1}
    assert "Traceback" not in found.stderr
    done = place.caisson("run", "/nowhere", "x")
    assert "is not a folder" in done.stderr
    begun.communicate(timeout=90)
    assert begun.returncode == 0


def test_a_state_directory_that_cannot_be_written_is_named(place, tmp_path):
    (tmp_path / "file").write_text("in the way")
    other = Product(tmp_path / "file" / "state")
    said = refused(other, "doctor")
    assert str(other.state) in said
    assert "CAISSON_STATE_DIR" in said


def test_a_setting_that_cannot_be_understood_is_named(place):
    done = subprocess.run(
        [*SCRIPT, "doctor"],
        env=place.environment | {"CAISSON_PORT": "eighty"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "CAISSON_PORT" in done.stderr


def test_an_unknown_command_shows_the_usage(place):
    done = place.caisson("fly")
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_a_folder_that_is_no_repository_is_refused(place, tmp_path):
    done = place.caisson("run", str(tmp_path), "x", "--json")
    assert done.returncode == 2
    assert "repository" in done.stderr.lower()
    told = last_json(done.stdout)
    assert (told["task"], told["status"]) == (None, None)
    assert told["database"] == str(place.state / "caisson.sqlite3")


def test_a_repository_without_a_commit_is_refused(place, tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "empty.git")], check=True)
    assert "empty" in refused(place, "run", str(tmp_path / "empty.git"), "x")


def test_an_unknown_flow_is_refused_and_the_known_ones_can_be_found(place, tmp_path):
    remote = repository(tmp_path, {"a": "a"})
    assert "flow" in refused(place, "run", str(remote), "x", "--flow", "nothing-like-it")


def test_every_problem_of_a_flow_file_is_told_at_once_with_its_line(place, tmp_path):
    remote = repository(tmp_path, {"a": "a"})
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        "apiVersion: caisson/v1\nkind: Flow\nname: bad\nnodes:\n"
        "  - key: a\n    needs: [b]\n    command: {run: x}\n"
        "  - key: b\n    needs: [a, missing]\n    command: {run: x}\n"
    )
    said = refused(place, "run", str(remote), "x", "--flow", str(flow))
    assert "missing" in said
    assert "a → b → a" in said
    assert "line 6" in said
    assert "line 9" in said


def test_a_capability_gap_has_its_own_exit_status_and_makes_no_task(place, tmp_path):
    remote = repository(tmp_path, {"a": "a"})
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        "apiVersion: caisson/v1\nkind: Flow\nname: gaps\nnodes:\n"
        "  - key: a\n    agent: {driver: no-such-driver, prompt: hello, skills: [no-such-skill]}\n"
    )
    before = len(place.tasks())
    done = place.caisson("run", str(remote), "x", "--flow", str(flow))
    assert done.returncode == 5
    assert "no-such-driver" in done.stderr
    assert "no-such-skill" in done.stderr
    assert len(place.tasks()) == before


def test_a_dirty_tree_is_named_and_not_used(place, tmp_path):
    remote = repository(tmp_path, {"pyproject.toml": "[project]\nname = 'x'\nversion = '1'\n", "x.py": "a=1\n"})
    tree = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(remote), str(tree)], check=True)
    (tree / "x.py").write_text("a = 'uncommitted'\n")
    done = place.caisson("run", str(tree), "Tidy", "--remote", str(remote))
    assert done.returncode == 0, done.stderr
    assert "x.py" in done.stderr
    shown = subprocess.run(
        ["git", "-C", str(remote), "log", "-p", "--all"], capture_output=True, text=True, check=True
    ).stdout
    assert "uncommitted" not in shown
