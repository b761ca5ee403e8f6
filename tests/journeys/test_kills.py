"""Whatever is killed while a task runs, the task goes on, or fails for the one reason that is true."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running_product import (
    BEAT,
    JOBS,
    MANAGER,
    REDIS,
    WEB,
    WORKER,
    Product,
    branch_commit,
    product,
    repository,
    until,
)

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(600)]

FLOW = """
apiVersion: caisson/v1
kind: Flow
name: long-enough
nodes:
  - key: first
    command: {run: "until test -e GATE; do sleep 0.1; done; echo first"}
    changes: keep
  - key: second
    needs: [first]
    command: {run: "echo made > made.txt"}
    changes: keep
  - key: deliver
    needs: [second]
    delivery: {change_request: {title: "{{ task.title }}"}}
"""


@pytest.fixture(scope="module")
def place():
    folder = Path(tempfile.mkdtemp(prefix="caisson-k-"))
    with product(folder / "state") as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def task(place: Product):
    """A task whose first node runs until its gate is opened: a file in its tree."""
    folder = Path(tempfile.mkdtemp(dir=place.state.parent))
    flow = folder / "flow.yaml"
    flow.write_text(FLOW.replace("GATE", f"gate-{folder.name}"))
    remote = repository(folder, {"README.md": "hello\n"})
    before = {each["id"] for each in place.tasks()} if place.pids(*WEB) else set()
    follower = place.begin("run", str(remote), "Make something", "--flow", str(flow))
    made = until(lambda: _new(place, before, follower), what="task created")
    place.wait_for_attempt(made["id"], "first", "running")
    yield made | {"gate": f"gate-{folder.name}"}
    if follower.poll() is None:
        follower.kill()
    follower.communicate()


def _new(place, before, follower):
    assert follower.poll() is None, follower.communicate()[1]
    with suppress(OSError, httpx.HTTPError):  # the console is still coming up
        return next((each for each in place.tasks() if each["id"] not in before), None)
    return None


def assert_delivered(place: Product, task: dict[str, Any]) -> None:
    for tree in place.state.glob(f"sandboxes/*{task['id'].removeprefix('tsk_')}*/work/first.*/tree"):
        (tree / task["gate"]).touch()
    found = place.wait_for_status(task["id"], "completed", "failed", "cancelled")
    assert found["status"] == "completed", found["failure"]
    (delivery,) = place.api(f"/tasks/{task['id']}/deliveries")["data"]
    assert branch_commit(found["remote"], found["task_branch"]) == delivery["commit"]


def commands(task: dict[str, Any]) -> list[int]:
    """Give the processes of the machine that wait for the gate."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if task["gate"].encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def attempt_states(place: Product, task: dict[str, Any]) -> list[str]:
    return [each["state"] for each in place.graph(task["id"])["attempts"]]


@pytest.mark.parametrize("victim", [WEB, WORKER, BEAT, REDIS], ids=["web", "worker", "beat", "redis"])
def test_the_task_goes_on_when_a_process_of_the_product_is_killed(place, task, victim):
    assert place.kill(*victim) >= 1
    assert_delivered(place, task)


def test_the_task_goes_on_when_everything_of_the_product_is_killed_at_once(place, task):
    assert 0 not in place.kill_at_once(WEB, JOBS, REDIS)
    assert_delivered(place, task)


def test_the_task_goes_on_when_the_process_manager_is_killed_and_the_product_started_again(place, task):
    assert place.kill(*MANAGER) >= 1  # a child that it has just forked still bears its name
    until(
        lambda: not any(place.pids(*each) for each in (WEB, JOBS, REDIS)),
        what="the product's processes ended with their manager",
    )
    assert place.caisson("doctor").returncode in {0, 1}
    starter = place.caisson("run", "/nowhere", "x")  # starts the product; there is no such repository
    assert starter.returncode != 0
    assert_delivered(place, task)


def test_a_killed_supervisor_loses_an_attempt_and_no_task(place, task):
    assert place.kill("sandbox_supervisor", " supervise ", task["id"].removeprefix("tsk_")) >= 1
    place.wait_for_attempt(task["id"], "first", "interrupted")
    place.wait_for_attempt(task["id"], "first", "running")
    assert_delivered(place, task)
    assert sorted(attempt_states(place, task)) == ["interrupted", "succeeded", "succeeded", "succeeded"]


def test_a_killed_runner_loses_an_attempt_and_no_task(place, task):
    assert place.kill("sandbox_supervisor", " runner ", task["id"].removeprefix("tsk_")) >= 1
    place.wait_for_attempt(task["id"], "first", "interrupted")
    place.wait_for_attempt(task["id"], "first", "running")
    assert_delivered(place, task)
    assert sorted(attempt_states(place, task)) == ["interrupted", "succeeded", "succeeded", "succeeded"]


def test_a_killed_launcher_is_a_lost_sandbox_and_nothing_of_it_lives_on(place, task):
    until(lambda: commands(task), what="the node's command runs")
    assert place.kill("sandbox_supervisor", " launch ", task["id"].removeprefix("tsk_")) >= 1
    found = place.wait_for_status(task["id"], "failed")
    assert found["failure"]["code"] == "sandbox_lost"
    assert found["presence"] == "lost"
    until(lambda: not place.pids("sandbox_supervisor", task["id"].removeprefix("tsk_")), what="every process gone")
    until(lambda: not commands(task), what="the node's command gone")


def test_a_cancelled_task_ends_its_processes_and_keeps_its_sandbox(place, task):
    until(lambda: commands(task), what="the node's command runs")
    assert place.post(f"/tasks/{task['id']}/cancel", {}, key="cancel-it").status_code in {200, 202}
    found = place.wait_for_status(task["id"], "cancelled")
    assert found["presence"] == "present"
    assert place.graph(task["id"])["graph"] == "cancelled"
    until(lambda: not commands(task), what="the node's command gone")
