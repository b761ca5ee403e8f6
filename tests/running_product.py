"""A real product for journeys, in a state directory of its own; it is ended with all that it left."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = [sys.executable, str(ROOT / "caisson")]
PATIENCE = 180.0  # seconds; generous, because the suite shares two cores


# The product's programs, each by words of its command line that no other one has.
MANAGER, WEB, REDIS = ("supervisord",), ("daphne",), ("redis-server",)
WORKER, BEAT, JOBS = ("celery", " worker "), ("celery", " beat "), ("celery",)


def free_port() -> int:
    """Choose a port that the kernel gives to nobody who asks for any: this one must stay free until it is used."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def until(found: Callable[[], Any], *, what: str, patience: float = PATIENCE) -> Any:
    """Ask until the answer is true and give it; fails with ``what`` when patience ends."""
    give_up_at = time.monotonic() + patience
    while not (answer := found()):
        assert time.monotonic() < give_up_at, f"not within {patience:.0f} s: {what}"
        time.sleep(0.1)
    return answer


class Product:
    """One state directory and one port. ``caisson`` runs a command of the start script to its end."""

    def __init__(self, state: Path, script: list[str] = SCRIPT) -> None:
        self.state = state
        self.script = script
        self.port = free_port()
        self.url = f"http://localhost:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CAISSON_")}
        kept.pop("DATABASE_URL", None)
        kept.pop("DJANGO_SETTINGS_MODULE", None)
        return kept | {"CAISSON_STATE_DIR": str(self.state), "CAISSON_PORT": str(self.port)}

    def caisson(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.script, *arguments],
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and go on; it hears signals as in a terminal, however the suite itself was started."""
        return subprocess.Popen(
            [*self.script, *arguments],
            preexec_fn=_hear_signals,  # noqa: PLW1509 - it takes no lock
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def inside(self, code: str) -> str:
        """Run Python inside the product's environment (Django set up) and give what it prints."""
        lines = "import django; django.setup()\n" + code
        environment = self.environment | {"DJANGO_SETTINGS_MODULE": "config.settings", "CAISSON_LOG_LEVEL": "error"}
        done = subprocess.run(
            [sys.executable, "-c", lines], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def sign_in_link(self) -> str:
        return self.inside(f"from config.commands.local import sign_in_link\nprint(sign_in_link({self.url!r}))")

    @property
    def token(self) -> str:
        return (self.state / "secrets" / "client_token").read_text().strip()

    def api(self, path: str, **query: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.get(f"{self.url}/api/v1{path}", headers=headers, params=query, timeout=40, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: dict[str, Any], *, key: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", "Idempotency-Key": key}
        return httpx.post(f"{self.url}/api/v1{path}", headers=headers, json=body, timeout=40, trust_env=False)

    def tasks(self) -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = self.api("/tasks")["data"]
        return data

    def graph(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api(f"/tasks/{task_id}/graph")
        return found

    def wait_for_status(self, task_id: str, *words: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            try:
                task: dict[str, Any] = self.api(f"/tasks/{task_id}")
            except httpx.HTTPError:
                return None
            return task if task["status"] in words else None

        found: dict[str, Any] = until(look, what=f"{task_id} {' or '.join(words)}")
        return found

    def wait_for_attempt(self, task_id: str, node: str, *states: str) -> None:
        def look() -> bool:
            try:
                graph = self.graph(task_id)
            except httpx.HTTPError:
                return False
            return any(each["node"] == node and each["state"] in states for each in graph["attempts"])

        until(look, what=f"an attempt of {node} {' or '.join(states)}")

    def pids(self, *words: str) -> list[int]:
        """Give the processes of this state directory whose command line holds every word."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                line = _command_line(folder)
                if all(word in line for word in words) and (str(self.state) in line or self._is_ours(folder)):
                    found.append(int(folder.name))
        return found

    def _is_ours(self, folder: Path) -> bool:
        try:
            return f"CAISSON_STATE_DIR={self.state}".encode() in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def kill(self, *words: str) -> int:
        """Send SIGKILL to the processes whose command line holds every word; give how many there were."""
        (count,) = self.kill_at_once(words)
        return count

    def kill_at_once(self, *victims: tuple[str, ...]) -> list[int]:
        """Do the same for several descriptions, one count each, and only then wait until all are gone.

        A process with many threads is seen for a moment after its death: who asked for its successor without that
        wait was given the dying one.
        """
        found = [self.pids(*words) for words in victims]
        killed = {pid for pids in found for pid in pids}
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not killed & set(self.pids()), what=f"{victims} killed", patience=30)
        return [len(pids) for pids in found]

    def end(self) -> None:
        """Stop the product, end every sandbox, remove the state directory; nothing is left running."""
        self.caisson("stop")
        until(lambda: not self.kill("sandbox_supervisor"), what="sandboxes ended", patience=30)
        until(lambda: not self.kill(*MANAGER), what="process manager ended", patience=30)
        shutil.rmtree(self.state, ignore_errors=True)


def _hear_signals() -> None:
    """Undo what ``nohup`` and a shell's ``&`` leave to their children."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _command_line(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def product(state: Path, script: list[str] = SCRIPT) -> Iterator[Product]:
    """A product that is not started yet; whatever it becomes is ended."""
    made = Product(state, script)
    try:
        yield made
    finally:
        made.end()


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Make a bare repository with one commit on ``main`` and give its path."""
    tree, bare = folder / "tree", folder / "origin.git"
    tree.mkdir(parents=True)
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    identity = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
    for command in (
        ["init", "-q", "--initial-branch=main"],
        ["add", "--all"],
        [*identity, "commit", "-q", "-m", "Begin"],
        ["clone", "-q", "--bare", ".", str(bare)],
    ):
        subprocess.run(["git", *command], cwd=tree, check=True, capture_output=True)
    return bare


def last_json(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found


def branch_commit(remote: str | Path, branch: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(remote), "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()
