"""Naming processes and ending trees."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_supervisor import processes
from sandbox_supervisor.processes import become_subreaper, descendants, kill_descendants
from sandbox_supervisor.protocol.identity import Process, boot_id, start_time
from tests.sandbox_folder import until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def running(pid: int) -> Process:
    """Name a process that must be there."""
    process = Process.of(pid)
    assert process is not None
    return process


@pytest.fixture
def sleeper():
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


def test_a_process_is_named_by_pid_start_and_boot(sleeper):
    process, started = running(sleeper.pid), start_time(sleeper.pid)
    assert started is not None
    assert process == Process(pid=sleeper.pid, start_time=started, boot_id=boot_id())
    assert process.alive()


def test_a_name_survives_being_written_down(sleeper):
    process = running(sleeper.pid)
    assert Process.parse(process.text()) == process


@pytest.mark.parametrize("text", ["", "x", "a:b:c", "boot:1", "boot:1:2:3"])
def test_what_is_no_name_is_refused(text):
    with pytest.raises(ValueError):
        Process.parse(text)


def test_a_pid_that_is_not_there_has_no_name():
    assert Process.of(2**22 + 1) is None


def test_a_zombie_does_not_run(sleeper):
    process = running(sleeper.pid)
    os.kill(sleeper.pid, signal.SIGKILL)
    until(lambda: not process.alive(), what="the end")
    assert Process.of(sleeper.pid) is None
    assert Path(f"/proc/{sleeper.pid}").exists()  # not reaped yet


def test_a_successor_with_the_same_pid_is_never_signalled(sleeper):
    real = running(sleeper.pid)
    earlier = Process(pid=real.pid, start_time=real.start_time - 1, boot_id=real.boot_id)
    of_another_boot = Process(pid=real.pid, start_time=real.start_time, boot_id="another")
    for ghost in (earlier, of_another_boot):
        assert not ghost.alive()
        assert ghost.signal(signal.SIGKILL) is False
    assert sleeper.poll() is None


def test_signalling_what_is_gone_says_so(sleeper):
    process = running(sleeper.pid)
    assert process.signal(signal.SIGKILL) is True
    sleeper.wait()
    assert process.signal(signal.SIGKILL) is False


def in_child(work) -> int:
    """Run ``work`` in a child of its own, since it changes what this process is; give its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(work() or 0)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


FLEE = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
"""


def test_daemons_that_fled_into_sessions_of_their_own_are_found_and_ended():
    def work():
        become_subreaper()
        subprocess.run([sys.executable, "-c", FLEE, "5"], env={}, check=True)
        until(lambda: len(descendants(os.getpid())) == 5, what="five orphans")
        return not kill_descendants(10) or descendants(os.getpid())

    assert in_child(work) == 0


FORK_ON_AND_ON = """
import os, sys
print("begins", flush=True)
for _ in range(20_000):  # far below the pids of a machine: nobody collects the dead before they are looked for
    if os.fork():
        os._exit(0)
open(sys.argv[1], "w").close()
"""


def test_a_process_that_keeps_forking_is_caught(tmp_path):
    uncaught = tmp_path / "uncaught"

    def work():
        become_subreaper()
        argv = [sys.executable, "-c", FORK_ON_AND_ON, str(uncaught)]
        chain = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE)
        assert chain.stdout is not None
        chain.stdout.readline()
        return not kill_descendants(60)

    assert in_child(work) == 0
    assert not uncaught.exists()


def test_what_is_spared_stays_with_its_children():
    def work():
        become_subreaper()
        parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
        kept = subprocess.Popen([sys.executable, "-c", parent])
        other = subprocess.Popen(SLEEP)
        until(lambda: len(descendants(os.getpid())) == 3, what="three processes")
        ended = kill_descendants(10, spare=kept.pid)
        left = descendants(os.getpid())
        kill_descendants(10)
        return not (ended and len(left) == 2 and other.pid not in {process.pid for process in left})

    assert in_child(work) == 0


def test_patience_ends_when_something_does_not():
    def work():
        subprocess.Popen(SLEEP)
        real = processes._kill
        processes._kill = lambda *_: None  # nothing dies of this
        early = kill_descendants(0.2)
        processes._kill = real
        return early or not kill_descendants(10)

    assert in_child(work) == 0


def test_a_child_dies_with_its_parent(tmp_path):
    script = f"""
import subprocess, sys, time
from sandbox_supervisor.processes import die_with_parent
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], preexec_fn=die_with_parent)
open({str(tmp_path / "pid")!r}, 'w').write(str(child.pid))
print('started', flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        child = Process.of(int((tmp_path / "pid").read_text()))
        parent.kill()
    assert child is not None
    until(lambda: not child.alive(), what="the child's end")
