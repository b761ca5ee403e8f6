"""What the launcher keeps up, what ends with it, and what it leaves behind: nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_providers.contract import State
from sandbox_supervisor.launcher.keeper import LOG_LIMIT, SUPERVISOR_RESPAWNS
from sandbox_supervisor.protocol import folder, handover
from sandbox_supervisor.protocol.identity import Process
from tests.sandbox_folder import until

pytestmark = pytest.mark.slow  # real processes that come, go and are waited for


def all_gone(processes):
    until(lambda: not any(process.alive() for process in processes), what="the end of every process")


def exit_of(sandbox) -> folder.Exit:
    return until(lambda: handover.read(sandbox.place / folder.EXIT, folder.Exit), what="the guard's word")


def test_a_killed_supervisor_is_back_on_the_same_port_with_the_same_certificate_and_secrets(sandbox):
    running = sandbox().start()
    before, record = running.ask(), running.record
    running.kill_supervisor()
    after = running.ask()  # pins the fingerprint of the first
    assert after["pid"] != before["pid"]
    assert (after["instance"], after["keys"]) == (before["instance"], before["keys"])
    assert running.record == record


def test_a_killed_runner_is_back_while_the_supervisor_goes_on(sandbox):
    running = sandbox().start()
    supervisor, runner = running.supervisor, running.runner
    runner.signal(signal.SIGKILL)
    until(lambda: running.runner not in {runner} and running.runner.alive(), what="another runner")
    assert running.supervisor == supervisor
    assert running.status.runner_starts == 2


def test_a_respawned_runner_has_the_same_nonce(sandbox):
    running = sandbox().start()
    before = nonce_of(running.runner.pid)
    runner = running.runner
    runner.signal(signal.SIGKILL)
    until(lambda: running.runner not in {runner} and running.runner.alive(), what="another runner")
    assert before
    # between fork and exec it still shows the launcher's environment
    assert until(lambda: nonce_of(running.runner.pid), what="the nonce of another runner") == before


def nonce_of(pid: int) -> bytes:
    found = [word for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"NONCE" in word]
    return found[0] if found else b""


def test_supervisor_runner_and_fled_daemons_die_with_a_killed_launcher(sandbox):
    running = sandbox().start()
    everything = running.everything()
    assert len(everything) == 5
    running.record.launcher.signal(signal.SIGKILL)
    all_gone(everything)
    assert exit_of(running) == folder.Exit(signal=signal.SIGKILL)


def test_a_killed_launcher_is_lost_for_good(sandbox):
    running = sandbox().start()
    running.record.launcher.signal(signal.SIGKILL)
    seen = running.wait(State.LOST)
    assert (seen.reason, seen.cause, seen.authoritative) == ("sandbox_lost", "killed", True)


def test_the_launcher_stops_in_order_when_its_guard_is_killed(sandbox):
    running = sandbox().start()
    everything = running.everything()
    running.record.guard.signal(signal.SIGKILL)
    all_gone(everything)
    assert "asked to stop" in (running.place / folder.LOG).read_text()


def test_supervisor_and_runner_die_when_launcher_and_guard_are_killed_at_once(sandbox):
    running = sandbox().start()
    kept = [running.supervisor, running.runner]
    running.record.guard.signal(signal.SIGKILL)
    running.record.launcher.signal(signal.SIGKILL)
    all_gone(kept)


def test_as_many_supervisor_deaths_as_are_granted_are_survived(sandbox):
    running = sandbox().start()
    for _ in range(SUPERVISOR_RESPAWNS):
        running.kill_supervisor()
    assert running.ask()["keys"]
    assert running.wait(State.READY).instance == running.ref.instance


def test_one_more_supervisor_death_ends_the_sandbox_with_exit_70(sandbox):
    running = sandbox().start()
    everything = running.everything()
    for _ in range(SUPERVISOR_RESPAWNS):
        running.kill_supervisor()
    running.supervisor.signal(signal.SIGKILL)
    seen = running.wait(State.FAILED)
    assert (seen.reason, "70" in seen.cause) == ("sandbox_failed", True)
    all_gone(everything)


def test_a_supervisor_that_ends_at_every_start_ends_the_sandbox(sandbox):
    made = sandbox().create()
    (made.place / "work").mkdir(exist_ok=True)
    (made.place / "work" / "crash").touch()
    until(lambda: made.observe().state is not State.PENDING, what="an end of materialisation")
    process = made.status.supervisor
    if process and made.observe().state is State.READY:  # it was quicker than the file
        Process.parse(process).signal(signal.SIGKILL)
    assert made.wait(State.FAILED).reason == "sandbox_failed"
    assert exit_of(made).code == folder.EXIT_SUPERVISOR


def test_sigterm_ends_everything_in_order(sandbox):
    running = sandbox().start()
    everything = running.everything()
    running.record.launcher.signal(signal.SIGTERM)
    all_gone(everything)
    assert exit_of(running) == folder.Exit(code=0)
    assert running.observe().state is State.TERMINATED


def test_what_ignores_sigterm_is_killed_after_its_grace(sandbox):
    made = sandbox().create()
    (made.place / "work").mkdir(exist_ok=True)
    (made.place / "work" / "stubborn").touch()
    running = made
    running.wait(State.READY)
    until(running.daemons, what="the runner's daemon")
    everything = running.everything()
    running.record.launcher.signal(signal.SIGTERM)
    all_gone(everything)
    assert exit_of(running) == folder.Exit(code=0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP])
def test_signals_of_a_terminal_change_nothing(sandbox, number):
    running = sandbox().start()
    everything = running.everything()
    running.record.launcher.signal(number)
    running.record.guard.signal(number)
    assert running.ask()["keys"]
    assert all(process.alive() for process in everything)


def test_a_sandbox_whose_folder_vanishes_ends(sandbox, tmp_path):
    running = sandbox().start()
    everything = running.everything()
    running.place.rename(tmp_path / "elsewhere")
    all_gone(everything)


def test_a_sandbox_whose_folder_is_replaced_by_another_ends(sandbox, tmp_path):
    running = sandbox().start()
    everything = running.everything()
    running.place.rename(tmp_path / "elsewhere")
    running.place.mkdir()
    all_gone(everything)
    assert list(running.place.iterdir()) == []


def test_a_sandbox_outlives_the_process_that_created_it(sandbox, harness):
    made = sandbox()
    assert harness.create_and_die(made.spec, 5) is True  # the step after which its instance is known
    seen = next(ref for ref in harness.provider.list_owned() if ref.name == made.spec.name)
    made.ref = seen
    assert made.wait(State.READY).instance == seen.instance


def test_a_sandbox_is_no_child_of_its_creator_and_has_a_session_of_its_own(sandbox):
    running = sandbox().start()
    for process in (running.record.launcher, running.record.guard):
        assert os.getsid(process.pid) == running.record.guard.pid
    parent = Path(f"/proc/{running.record.guard.pid}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) != os.getpid()


def test_a_log_that_has_grown_too_long_is_begun_anew_and_still_written_to(sandbox):
    running = sandbox().start()
    log = running.place / folder.LOG
    with log.open("ab") as file:
        file.truncate(LOG_LIMIT + 1)
    until(lambda: log.stat().st_size < LOG_LIMIT, what="a new log")
    running.kill_supervisor()
    until(lambda: "the supervisor has ended" in log.read_text(), what="a line in the new log")
    assert log.with_suffix(".log.1").stat().st_size > LOG_LIMIT


def test_the_runner_lets_others_go_first(sandbox):
    running = sandbox().start()
    assert os.getpriority(os.PRIO_PROCESS, running.runner.pid) > os.getpriority(os.PRIO_PROCESS, running.supervisor.pid)


def test_a_launcher_that_is_told_to_stop_while_it_starts_stops(sandbox, harness):
    made = sandbox()
    assert harness.create_and_die(made.spec, 4) is True  # it has just been spawned
    until((made.place / folder.RECORD).exists, what="a launcher")
    made.record.launcher.signal(signal.SIGTERM)
    all_gone([made.record.launcher, made.record.guard])
    assert exit_of(made) in {folder.Exit(code=0), folder.Exit(signal=signal.SIGTERM)}


# --- one launcher per sandbox ----------------------------------------------------------------------------------------


def launch_by_hand(sandbox, stdin: bytes = b"{}") -> int:
    order = handover.read(sandbox.place / folder.ORDER, folder.Order)
    assert order is not None
    command = [sys.executable, "-P", "-m", "sandbox_supervisor", "launch", "--folder", str(sandbox.place)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": order.image, folder.MARK: order.uid}
    return subprocess.run(command, input=stdin, env=environment, timeout=90, check=False).returncode


def test_a_second_launcher_beside_the_first_is_refused(sandbox):
    running = sandbox().start()
    record = running.record
    assert launch_by_hand(running) == folder.EXIT_LOCKED
    assert running.record == record
    assert running.observe().state is State.READY


def test_a_second_launcher_after_the_first_is_refused_and_changes_nothing(sandbox):
    running = sandbox().start()
    running.record.launcher.signal(signal.SIGKILL)
    running.wait(State.LOST)
    before = exit_of(running)
    assert launch_by_hand(running) == folder.EXIT_USED
    assert exit_of(running) == before
    assert running.observe().state is State.LOST


def test_a_launcher_that_comes_after_terminate_never_claims(sandbox, harness):
    made = sandbox()
    assert harness.create_and_die(made.spec, 3) is True  # the order stands, no launcher yet
    (ref,) = harness.provider.list_owned()
    harness.provider.terminate(ref, reason="revoked")
    assert launch_by_hand(made) == folder.EXIT_TERMINATED
    assert not (made.place / folder.RECORD).exists()
    assert harness.provider.observe(ref).state is State.TERMINATED


def test_unreadable_secrets_are_a_structured_failure(sandbox, harness):
    made = sandbox()
    harness.create_and_die(made.spec, 3)
    assert launch_by_hand(made, b"{half") == 0
    (made.ref,) = harness.provider.list_owned()
    assert made.wait(State.FAILED).reason == "materialisation_failed"
    assert made.failure()["code"] == "secrets_unreadable"
    assert "half" not in (made.place / folder.LOG).read_text() if (made.place / folder.LOG).exists() else True


def test_secrets_without_end_are_refused(sandbox, harness):
    made = sandbox()
    harness.create_and_die(made.spec, 3)
    assert launch_by_hand(made, b'{"supervisor":{"task_token":"' + b"x" * 300_000 + b'"}}') == 0
    (made.ref,) = harness.provider.list_owned()
    assert made.wait(State.FAILED).reason == "materialisation_failed"


# --- materialisation -------------------------------------------------------------------------------------------------


def test_nothing_begins_when_materialisation_fails(sandbox, harness):
    made = sandbox(specification=harness.failing_specification()).create()
    seen = made.wait(State.FAILED)
    assert seen.evidence["failure"]["code"] == "baseline_missing"
    assert seen.evidence["failure"]["stage"] == "repository"
    assert exit_of(made).code == folder.EXIT_MATERIALISATION
    assert made.status.supervisor_starts == 0
    assert made.daemons() == []


def test_a_specification_that_is_none_is_a_structured_failure(sandbox):
    made = sandbox(specification=b'{"task": 1}').create()
    assert made.wait(State.FAILED).evidence["failure"]["code"] == "specification_unreadable"


def test_the_repository_is_there_before_the_supervisor(sandbox):
    running = sandbox().start()
    head = (running.place / "repo" / "refs" / "caisson" / "baseline").read_text().strip()
    assert len(head) == 40


def test_a_sandbox_is_private_to_its_user(sandbox):
    running = sandbox().start()
    assert running.place.stat().st_mode & 0o077 == 0
    for name in (folder.ORDER, folder.SPECIFICATION, folder.RECORD, folder.STATUS, folder.LOG, "log", "ctl", "work"):
        assert (running.place / name).stat().st_mode & 0o077 == 0, name
