"""Where the secrets of a sandbox are, and above all where they are not."""

import ctypes
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox_providers.conformance.local import LocalHarness
from sandbox_providers.contract import State
from sandbox_supervisor.protocol import folder
from sandbox_supervisor.protocol.identity import Process
from tests.sandbox_folder import make_image, until

pytestmark = pytest.mark.slow  # real processes in every test

PR_CAPBSET_DROP, CAPABILITIES = 24, 64

REPORTING_MATERIALISE = '''
"""Write down what a materialisation is given and what it finds beside it, then do the real thing."""
import json, os, time
from pathlib import Path
from sandbox_supervisor.materialise import real


def waiting_supervisor(place):
    """Give the pid of the supervisor that has been started meanwhile, once it runs its own program."""
    ends_at = time.monotonic() + 90
    while time.monotonic() < ends_at:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_text().split("\\0")
            except OSError:
                continue
            if "supervise" in words and place in words:
                return int(path.parent.name)
        time.sleep(0.01)
    return None


def in_pipes(pid):
    """Read what lies in the pipes that a process holds; None stands for one that is empty and may yet be filled."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if "pipe:" in os.readlink(path):
                found.append(os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 65536).decode())
        except BlockingIOError:
            found.append(None)
        except OSError:
            continue
    return found


def main(argv):
    work = Path(argv[argv.index("--folder") + 1]) / "work"
    fd = os.dup(int(argv[argv.index("--secrets-fd") + 1]))
    keys = sorted(json.loads(os.pread(fd, 65536, 0)))
    os.close(fd)
    seen = {"keys": keys, "argv": argv, "environ": sorted(os.environ)}
    seen["shown"] = [Path(f"/proc/self/{name}").read_text() for name in ("cmdline", "environ")]
    seen["supervisor"] = waiting_supervisor(str(work.parent))
    seen["pipes"] = in_pipes(seen["supervisor"])
    (work / "materialise-saw").write_text(json.dumps(seen))
    return real.main(argv)
'''


def image_that_reports(state: Path) -> str:
    digest = make_image(state)
    package = state / "images" / digest.removeprefix("sha256:") / "sandbox_supervisor" / "materialise"
    if not (package / "real.py").exists():
        (package / "command.py").rename(package / "real.py")
        (package / "command.py").write_text(REPORTING_MATERIALISE)
    return digest


@pytest.fixture
def harness():
    made = LocalHarness(image=image_that_reports, isolation="none")
    yield made
    made.close()


def canaries(harness) -> list[bytes]:
    return [secret.reveal().encode() for keys in harness.secrets().values() for secret in keys.values()]


def family(running) -> list[int]:
    return [process.pid for process in running.everything()]


def open_files(process: Process) -> list[str]:
    """Name what a process holds open; what it has closed again since it was seen is left out."""
    found = []
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(path.readlink()))
    return found


def test_no_secret_is_in_the_arguments_or_environment_of_any_process(sandbox, harness):
    running = sandbox().start()
    for pid in family(running):
        for name in ("cmdline", "environ"):
            shown = Path(f"/proc/{pid}/{name}").read_bytes()
            assert not [canary for canary in canaries(harness) if canary in shown], (pid, name)


def test_no_secret_is_in_any_file_of_the_state_directory(sandbox, harness):
    running = sandbox().start()
    running.kill_supervisor()
    files = [path for path in harness.state.rglob("*") if path.is_file()]
    assert running.place / folder.LOG in files
    for path in files:
        with suppress(FileNotFoundError):  # one that has been replaced since
            content = path.read_bytes()
            assert not [canary for canary in canaries(harness) if canary in content], path


def test_the_scan_finds_a_planted_secret(sandbox, harness):
    running = sandbox().start()
    (running.place / "work" / "planted").write_bytes(b"x" + canaries(harness)[0])
    assert harness.clear_text(running.spec.name, canaries(harness)[0].decode())


def test_the_supervisor_gets_exactly_its_keys_and_the_nonce(sandbox, harness):
    running = sandbox().start()
    assert running.ask()["keys"] == sorted([*harness.secrets()["supervisor"], "runner_nonce"])


def test_materialisation_gets_exactly_its_keys(sandbox, harness):
    running = sandbox().start()
    saw = json.loads((running.place / "work" / "materialise-saw").read_text())
    assert saw["keys"] == sorted(harness.secrets()["materialise"])
    assert not [canary for canary in canaries(harness) if canary.decode() in json.dumps(saw)]


def test_a_supervisor_is_there_before_materialisation_has_ended_and_has_no_secrets_yet(sandbox):
    running = sandbox().start()
    saw = json.loads((running.place / "work" / "materialise-saw").read_text())
    assert saw["supervisor"] == running.ask()["pid"]
    assert saw["pipes"] == [None, None]


def test_environments_hold_what_is_listed_and_nothing_else(sandbox, monkeypatch):
    passed_on = {"TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"}
    for name in passed_on | {"PIP_CACHE_DIR", "HTTPS_PROXY"}:
        monkeypatch.setenv(name, "/of/the/machine")
    running = sandbox().start()
    listed = {"CAISSON_SANDBOX", "LANG", "PATH", "PYTHONPATH"}
    python_adds = {"LC_CTYPE"}
    supervisor = set(running.ask()["environ"])
    runner = set((running.place / "work" / "runner-environ").read_text().split())
    materialise = set(json.loads((running.place / "work" / "materialise-saw").read_text())["environ"])
    assert supervisor - python_adds == listed | passed_on
    assert materialise - python_adds == listed | passed_on
    assert runner - python_adds == listed | passed_on | {"CAISSON_RUNNER_NONCE"}


def test_nobody_but_the_supervisor_ever_holds_a_memory_file(sandbox):
    running = sandbox().start()
    for process in (running.record.launcher, running.record.guard, running.runner):
        assert not [name for name in open_files(process) if "memfd" in name], process


def test_the_runner_does_not_hold_the_supervisors_socket(sandbox):
    running = sandbox().start()
    assert not [name for name in open_files(running.runner) if name.startswith("socket:")]


def test_standard_input_of_launcher_and_guard_is_closed_once_the_secrets_are_read(sandbox, harness):
    running = sandbox().start()
    assert harness.has_secret(running.spec.name) is False


def plain_user() -> None:
    """Take away what root may do beyond others, so that it is a user like any."""
    libc = ctypes.CDLL(None)
    for capability in range(CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def can_read(path: str) -> bool:
    """Say whether another process of the same user, without root's rights, can look at ``path``."""
    ways = {"0": "os.readlink(p)", "cwd": "os.readlink(p)"}
    look = f"import os; p = {path!r}; {ways.get(Path(path).name, 'open(p).read(1)')}"
    command = [sys.executable, "-I", "-c", look]
    return subprocess.run(command, preexec_fn=plain_user, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("part", ["environ", "maps", "fd/0", "cwd"])
def test_launcher_and_supervisor_cannot_be_read_by_others_of_the_same_user(sandbox, harness, part):
    running = sandbox()
    assert harness.create_elsewhere(running.spec, first=plain_user) == 0
    (running.ref,) = harness.provider.list_owned()
    running.wait(State.READY)
    assert running.ask()["keys"]  # it has come past its first instructions, before which it is open
    assert can_read(f"/proc/{running.runner.pid}/{part}")  # the stand-in has not closed itself
    assert not can_read(f"/proc/{running.record.launcher.pid}/{part}")
    assert not can_read(f"/proc/{running.supervisor.pid}/{part}")


def test_withdrawing_says_when_the_secret_is_still_being_read(sandbox, harness):
    running = sandbox().start()
    harness.provider.withdraw_secret(running.ref)
    status = running.place / folder.STATUS
    status.write_text('{"phase": "starting"}')
    with pytest.raises(Exception, match="reading its secrets"):
        harness.provider.withdraw_secret(running.ref)
    assert running.observe().state is State.PENDING


def test_a_wrong_bearer_learns_nothing(sandbox):
    from tests.sandbox_folder import call

    running = sandbox().start()
    assert call(running.endpoint, "guess") == {"error": 401}


def test_two_sandboxes_show_different_certificates(sandbox):
    one, other = sandbox().start(), sandbox().start()
    until(lambda: one.record and other.record)
    assert one.record.fingerprint != other.record.fingerprint
    assert one.record.port != other.record.port
