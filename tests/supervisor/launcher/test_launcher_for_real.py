"""A sandbox as the product makes it: built image, real supervisor and runner, bubblewrap where it works."""

import http.client
import json
import signal
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sandbox_providers.conformance.local import LocalHarness
from sandbox_providers.contract import State
from sandbox_supervisor.processes import descendants
from tests.sandbox_folder import until
from tests.supervisor.launcher.conftest import Sandbox

pytestmark = pytest.mark.slow  # builds the image


@pytest.fixture(scope="module")
def running():
    harness = LocalHarness()
    made = Sandbox(harness)
    made.create().wait(State.READY)
    until(lambda: readiness(made).get("ready"), what="readiness")
    yield made
    harness.close()


@pytest.fixture
def fresh():
    harness = LocalHarness()
    made = Sandbox(harness)
    made.create().wait(State.READY)
    until(lambda: readiness(made).get("ready"), what="readiness")
    yield made
    harness.close()


def readiness(sandbox) -> dict[str, Any]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(sandbox.record.host, sandbox.record.port, context=context, timeout=20)
    token = sandbox.harness.secrets()["supervisor"]["dial_token"].reveal()
    try:
        connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {token}"})
        return dict(json.loads(connection.getresponse().read()))
    except (OSError, http.client.HTTPException):
        return {}
    finally:
        connection.close()


def isolated(sandbox) -> None:
    if sandbox.observe().evidence["tier"] != "bubblewrap":
        pytest.skip(f"no bubblewrap here: {sandbox.harness.provider.capabilities().isolation_detail}")


def runner_of(sandbox) -> int:
    """Give the pid of the runner itself, inside bubblewrap's processes."""
    inside = descendants(sandbox.runner.pid)
    return inside[-1].pid if inside else sandbox.runner.pid


def seen_by_runner(sandbox, path: Path) -> bool:
    return Path(f"/proc/{runner_of(sandbox)}/root{path}").exists()


def test_the_supervisor_answers_as_the_instance_and_specification_that_were_ordered(running):
    answer = readiness(running)
    assert answer["instance"] == running.ref.instance
    assert answer["specification"] == running.spec.digest
    assert set(answer["readiness"].values()) == {"ok"}


def test_the_runner_sees_its_own_folders_and_nothing_else_of_the_state_directory(running):
    isolated(running)
    for shown in ("repo", "ctl", "work"):
        assert seen_by_runner(running, running.place / shown), shown
    for hidden in ("log", "order.json", "sandbox.json", "spec.json", "launcher.log", "status.json"):
        assert not seen_by_runner(running, running.place / hidden), hidden
    assert not seen_by_runner(running, running.harness.layout.names)
    (running.harness.state / "vault").write_text("secret")
    assert not seen_by_runner(running, running.harness.state / "vault")


def test_the_runner_has_a_process_namespace_of_its_own(running):
    isolated(running)
    ours = Path("/proc/self/ns/pid").readlink()
    assert Path(f"/proc/{runner_of(running)}/ns/pid").readlink() != ours


def test_no_secret_lies_open_anywhere(running):
    for keys in running.harness.secrets().values():
        for secret in keys.values():
            assert running.harness.clear_text(running.spec.name, secret.reveal()) == []


def test_no_process_of_the_real_sandbox_shows_a_secret(running):
    pids = [running.record.guard.pid, *(process.pid for process in descendants(running.record.guard.pid))]
    assert len(pids) >= 4
    for pid in pids:
        shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        assert b"canary" not in shown, pid


def test_a_killed_supervisor_is_ready_again_with_its_runner(fresh):
    fresh.kill_supervisor()
    until(lambda: readiness(fresh).get("ready"), what="readiness")
    assert fresh.observe().instance == fresh.ref.instance


def test_a_killed_runner_is_replaced_and_the_sandbox_ready_again(fresh):
    runner = fresh.runner
    runner.signal(signal.SIGKILL)
    until(lambda: fresh.runner not in {runner} and fresh.runner.alive(), what="another runner")
    until(lambda: readiness(fresh).get("ready"), what="readiness")


def test_a_killed_launcher_leaves_no_process(fresh):
    everything = [fresh.record.guard, *descendants(fresh.record.guard.pid)]
    fresh.record.launcher.signal(signal.SIGKILL)
    until(lambda: not any(process.alive() for process in everything), what="the end of every process")
    assert fresh.wait(State.LOST).cause == "killed"


def test_a_terminated_sandbox_leaves_a_sound_log(fresh):
    fresh.harness.provider.terminate(fresh.ref, reason="test")
    order = fresh.harness.layout.order(fresh.spec.name)
    command = [order.python, "-P", "-s", "-B", "-m", "sandbox_supervisor", "supervise", "--verify", "--folder"]
    done = subprocess.run([*command, str(fresh.place)], env={"PYTHONPATH": order.image}, check=False)
    assert done.returncode == 0
