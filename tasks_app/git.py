"""Call Git from the control plane the one safe way: bare repositories of ours and remotes that the rules allow.

Nothing is inherited from the environment, no prompt, no hook, bounded output and time; the whole process group is dead
when a call returns.
"""

import os
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sandbox_supervisor.protocol import git_rules, handover
from sandbox_supervisor.protocol.git_rules import Completed, GitFailed

__all__ = ["Completed", "GitFailed", "Objects", "run"]

OUTPUT_LIMIT = 64 * 1024 * 1024
TIMEOUT = 120.0
COMPLAINT_LIMIT = 64 * 1024
PIECE = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """Where a call writes new objects instead of its repository, which it then only reads."""

    folder: Path
    alternate: Path

    def environment(self) -> dict[str, str]:
        quoted = str(self.alternate).replace("\\", "\\\\").replace('"', '\\"')  # the list is separated by colons
        return {"GIT_OBJECT_DIRECTORY": str(self.folder), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}


def run(
    *args: str,
    repo: Path | None = None,
    objects: Objects | None = None,
    stdin: BinaryIO | None = None,
    timeout: float = TIMEOUT,
    limit: int = OUTPUT_LIMIT,
    memory: int | None = None,
    safe: Sequence[str] = (),
    accept: Sequence[int] = (0,),
) -> Completed:
    """Run ``git <args>`` on exactly ``repo`` (a bare repository; no discovery), or on none.

    ``stdin`` is read from its current position; ``safe`` names further local repositories that the call may open;
    ``memory`` bounds the address space of the Git process in bytes. An exit code outside ``accept`` raises GitFailed.
    """
    with _global_config([*([str(repo)] if repo else []), *safe]) as config:
        argv = ["git", *git_rules.FLAGS, *([f"--git-dir={repo}"] if repo else []), *args]
        env = _environment(config) | (objects.environment() if objects else {})
        completed = _carry_out(argv, env, _Bounds(timeout, limit, memory), stdin, config)
    if completed.returncode not in accept:
        tail = completed.stderr.strip()[-2000:]
        said = f"git {_verb(args)}: {tail or completed.returncode}"
        raise GitFailed("failed", said, returncode=completed.returncode, stderr=tail)
    return completed


@dataclass(frozen=True, slots=True)
class _Bounds:
    timeout: float
    limit: int
    memory: int | None


def _environment(config: int) -> dict[str, str]:
    found = shutil.which("git")
    path = f"{Path(found).parent}:{os.defpath}" if found else os.defpath
    return git_rules.environment(path=path, tmp=tempfile.gettempdir(), global_config=f"/proc/self/fd/{config}")


@contextmanager
def _global_config(repositories: Sequence[str]) -> Iterator[int]:
    """Open an in-memory file that names ``repositories`` as safe; nobody else can write it."""
    fd = handover.memory_file("caisson-git", git_rules.safe_config(repositories).encode())
    try:
        yield fd
    finally:
        os.close(fd)


def _carry_out(argv: list[str], env: dict[str, str], bounds: _Bounds, stdin: BinaryIO | None, config: int) -> Completed:
    process = subprocess.Popen(
        argv,
        stdin=stdin if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd="/",
        pass_fds=[config],
        start_new_session=True,
    )
    try:
        if bounds.memory:
            _bound_memory(process.pid, bounds.memory)
        output, complaints = _follow(process, time.monotonic() + bounds.timeout, bounds.limit)
    except subprocess.TimeoutExpired:
        verb = _verb(argv[1 + len(git_rules.FLAGS) :])
        raise GitFailed("timeout", f"git {verb} did not end within {bounds.timeout:g} s") from None
    finally:
        returncode = _end(process)
    return Completed(returncode=returncode, stdout=output, stderr=complaints.decode("utf-8", "replace"))


def _verb(args: Sequence[str]) -> str:
    """Give the name of the Git command, after the flags of ``git`` itself."""
    words = iter(args)
    for word in words:
        if word == "-c":
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


def _bound_memory(pid: int, limit: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))


def _follow(process: subprocess.Popen[bytes], ends_at: float, limit: int) -> tuple[bytes, bytes]:
    """Give all of the output and the end of the complaints, of which a hostile remote may send as many as it likes.

    Waits for the end of the output and of the leader, which is not reaped: its group must not be named by a reused
    number. Who else holds the complaints open is not waited for.
    """
    output, complaints = process.stdout, process.stderr
    assert output is not None and complaints is not None  # noqa: S101, PT018 - pipes were asked for
    parts, size, tail = [], 0, b""
    leader = os.pidfd_open(process.pid)
    with output, complaints, os.fdopen(leader, "rb", buffering=0), selectors.DefaultSelector() as selector:
        os.set_blocking(complaints.fileno(), False)
        for source in (output.fileno(), complaints.fileno(), leader):
            selector.register(source, selectors.EVENT_READ)
        while {output.fileno(), leader} & selector.get_map().keys():
            ready = [key.fd for key, _ in selector.select(max(0.0, ends_at - time.monotonic()))]
            if not ready or ends_at <= time.monotonic():
                raise subprocess.TimeoutExpired("git", 0)
            for source in ready:
                chunk = b"" if source == leader else os.read(source, PIECE)
                if not chunk:
                    selector.unregister(source)
                elif source == complaints.fileno():
                    tail = (tail + chunk)[-COMPLAINT_LIMIT:]
                else:
                    parts.append(chunk)
                    size += len(chunk)
            if size > limit:
                raise GitFailed("too_big", f"git gave more than {limit} bytes")
        with suppress(BlockingIOError):
            tail = (tail + os.read(complaints.fileno(), PIECE))[-COMPLAINT_LIMIT:]
    return b"".join(parts), tail


def _end(process: subprocess.Popen[bytes]) -> int:
    """Kill what is left of the group: transport programs may outlive the ``git`` that started them."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
