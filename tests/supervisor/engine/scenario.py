"""Build real repositories and specifications, and run supervisors over them as processes of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox_supervisor import git
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import (
    Agent,
    Changes,
    Command,
    Delivery,
    Flow,
    Node,
    NodeKind,
)
from sandbox_supervisor.protocol.spec import (
    DriverEntry,
    DriverProtocol,
    Limits,
    Repository,
    TaskInfo,
    TaskSpecification,
)

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 90.0  # seconds that any graph of these tests may take on a busy machine
LEFT = 30.0  # seconds until every process has ended
BRANCH = "caisson/tsk-test"
Playbook = list[dict[str, Any]]


def repository(folder: Path, files: dict[str, str] | None = None) -> tuple[Path, str]:
    """Make a small repository and give it with its head commit."""
    folder.mkdir(parents=True)
    git.run(None, "init", "-q", "-b", "main", str(folder))
    for name, text in (files or {"README.md": "A project\n", "value.txt": "1\n"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    store = folder / ".git"
    git.run(store, "add", "-A", work_tree=folder)
    git.run(store, "commit", "-q", "-m", "Start", work_tree=folder, env=git.dated(1_700_000_000))
    return folder, git.run(store, "rev-parse", "HEAD").text


def command(key: str, run: str, *needs: str, **more: Any) -> Node:
    """Give a command node; options of the command go in ``options``."""
    options = more.pop("options", {})
    return Node(key=key, kind=NodeKind.COMMAND, needs=needs, command=Command(run=run, **options), **more)


def keeping(key: str, run: str, *needs: str, **more: Any) -> Node:
    """Give a command node whose changes are kept."""
    return command(key, run, *needs, changes=Changes.KEEP, **more)


def agent(key: str, playbook: Playbook, *needs: str, **more: Any) -> Node:
    """Give a node whose agent plays ``playbook``."""
    options = {"prompt": f"Do {key}.", **more.pop("options", {})}
    played = Agent(driver="scripted", playbook=playbook, **options)
    return Node(key=key, kind=NodeKind.AGENT, needs=needs, agent=played, changes=Changes.KEEP, **more)


def deliver(*needs: str) -> Node:
    return Node(key="deliver", kind=NodeKind.DELIVERY, needs=needs, delivery=Delivery())


@dataclass(slots=True)
class Ran:
    code: int
    lines: list[str]
    errors: str

    def outcome(self, node: str) -> str:
        """Give the last state that was printed of a node."""
        states = [
            line.split()[3]
            for line in self.lines
            if line.split()[1:2] == ["node"] and line.split()[2].rsplit(".", 1)[0] == node
        ]
        return states[-1] if states else "never"

    def states(self, node: str) -> list[str]:
        return [
            line.split()[3]
            for line in self.lines
            if line.split()[1:2] == ["node"] and line.split()[2].rsplit(".", 1)[0] == node
        ]

    def attempts(self, node: str) -> dict[str, str]:
        """Give the last state of each attempt of a node."""
        found = {}
        for line in self.lines:
            words = line.split()
            if words[1:2] == ["attempt"] and words[2].rsplit(".", 2)[0] == node:
                found[words[2]] = words[3]
        return found

    def said(self, text: str) -> bool:
        return any(text in line for line in self.lines)


@dataclass(slots=True)
class Sandbox:
    """One sandbox folder with its specification. ``start`` runs a supervisor over it."""

    folder: Path
    spec: TaskSpecification
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    def start(self, *options: str, answer: bool = True, **environment: str) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "spec.json").write_bytes(codec.canonical(self.spec))
        chosen = ["--isolation", "none", *(["--answer", "first"] if answer else []), *options]
        argv = [sys.executable, "-m", "sandbox_supervisor", "supervise", "--standalone", "--folder", str(self.folder)]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CAISSON_")}
        number = len(self.started)
        with (self.folder / f"out.{number}").open("wb") as out, (self.folder / f"err.{number}").open("wb") as err:
            process = subprocess.Popen(
                [*argv, *chosen],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=inherited | environment,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def run(self, *options: str, answer: bool = True, **environment: str) -> Ran:
        """Run a supervisor to its end."""
        self.start(*options, answer=answer, **environment).wait(PATIENCE)
        return self.ran()

    def ran(self) -> Ran:
        """Give what the newest supervisor has printed so far."""
        number = len(self.started) - 1
        code = self.started[-1].poll()  # before reading: of one that has ended, every line is there
        lines = (self.folder / f"out.{number}").read_text().splitlines(keepends=True)
        whole = [line.rstrip("\n") for line in lines if line.endswith("\n")]
        return Ran(-1 if code is None else code, whole, (self.folder / f"err.{number}").read_text())

    def wait_for(self, text: str) -> Ran:
        """Wait until the newest supervisor has printed ``text``."""
        ends_at = time.monotonic() + PATIENCE
        while time.monotonic() < ends_at:
            ran = self.ran()
            if ran.said(text):
                return ran
            if ran.code != -1:
                break
            time.sleep(0.02)
        raise AssertionError(f"never said {text!r}:\n" + "\n".join(ran.lines) + "\n" + ran.errors)

    def kill(self) -> None:
        """End the newest supervisor as a power cut would."""
        self.started[-1].send_signal(signal.SIGKILL)
        self.started[-1].wait(LEFT)

    def stop(self) -> int:
        """End the newest supervisor in order."""
        self.started[-1].terminate()
        return self.started[-1].wait(PATIENCE)

    def verify(self) -> str:
        argv = [sys.executable, "-m", "sandbox_supervisor", "supervise", "--verify", "--folder", str(self.folder)]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done.stdout.strip() or done.stderr.strip()

    def git(self, *args: str) -> str:
        return git.run(self.repo, *args).text

    def file(self, commit: str, path: str) -> str:
        return self.git("cat-file", "blob", f"{commit}:{path}")

    def processes(self) -> list[str]:
        """Name every process that has something to do with this sandbox."""
        return processes_about(self.folder)

    def wait_empty(self) -> list[str]:
        """Give what is left of its processes once there is nothing, or when patience ends."""
        ends_at = time.monotonic() + LEFT
        while (left := self.processes()) and time.monotonic() < ends_at:
            time.sleep(0.05)
        return left

    def wait_for_none(self, words: str) -> list[str]:
        """Give the processes of this sandbox that run ``words``, once there are none or when patience ends."""
        ends_at = time.monotonic() + LEFT
        while time.monotonic() < ends_at:
            left = [line for line in self.processes() if words in line.replace("\0", " ")]
            if not left:
                break
            time.sleep(0.05)
        return left

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait(LEFT)
        self.wait_empty()


def processes_about(folder: Path) -> list[str]:
    """Name processes whose command line, environment or working directory mentions the folder."""
    wanted = os.fsencode(str(folder))
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            about = line + (entry / "environ").read_bytes() + os.fsencode((entry / "cwd").readlink())
        except OSError:  # it has just ended
            continue
        if wanted in about:
            found.append(f"{entry.name}: {line.decode(errors='replace')[:200]}")
    return found


def specification(
    source: Path, commit: str, nodes: Sequence[Node], finally_: Sequence[Node] = (), **more: Any
) -> TaskSpecification:
    return TaskSpecification(
        task=TaskInfo(id="tsk_test", title="Test task", brief="Do it.", creator="ada", workspace="lab"),
        repository=Repository(
            slug="project", clone_url=str(source), base_commit=commit, base_ref="refs/heads/main", task_branch=BRANCH
        ),
        flow=Flow(name="test", nodes=tuple(nodes), finally_=tuple(finally_)),
        nonce="nonce",
        drivers={"scripted": DriverEntry(name="scripted", protocol=DriverProtocol.SCRIPTED)},
        limits=more.pop("limits", Limits()),
        **more,
    )
