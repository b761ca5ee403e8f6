"""Call Git the one safe way: fixed environment, fixed flags, no hooks, no prompts, bounded output and time."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox_supervisor.protocol.git_rules import FLAGS, Completed, GitFailed, environment, safe_config
from sandbox_supervisor.protocol.handover import memory_file

__all__ = ["Completed", "GitFailed", "call", "dated", "run"]

OUTPUT_LIMIT = 64 * 1024 * 1024
TIMEOUT = 120.0


@dataclass(slots=True)
class _Call:
    argv: list[str]
    env: dict[str, str]
    ends_at: float
    limit: int
    fds: list[int] = field(default_factory=list)


def run(
    repo: Path | None,
    *args: str,
    input: bytes | None = None,  # noqa: A002  # the word subprocess uses
    timeout: float = TIMEOUT,
    limit: int = OUTPUT_LIMIT,
    work_tree: Path | None = None,
    safe: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    accept: Sequence[int] = (0,),
) -> Completed:
    """Run ``git <args>`` on exactly ``repo`` (a Git directory; no discovery), or on none.

    ``work_tree`` is the working directory, too. ``safe`` names further repositories that the call reads (``repo`` is
    always one). ``env`` is added to the fixed environment, ``prefix`` goes before ``git``. Standard output beyond
    ``limit`` bytes is ``too_big``. Raises GitFailed unless the exit code is in ``accept``.
    """
    with _global_config([*([repo] if repo else []), *([work_tree] if work_tree else []), *safe]) as config:
        place = [f"--git-dir={repo}"] if repo else []
        place += [f"--work-tree={work_tree}"] if work_tree else []
        call = _Call(
            argv=[*prefix, "git", *FLAGS, *place, *args],
            env=_environment(config) | dict(env or {}),
            ends_at=time.monotonic() + timeout,
            limit=limit,
            fds=[config],
        )
        completed = _carry_out(call, input or b"", work_tree)
    if completed.returncode not in accept:
        tail = completed.stderr.strip()[-2000:]
        raise GitFailed(
            "failed", f"git {args[0]}: {tail or completed.returncode}", returncode=completed.returncode, stderr=tail
        )
    return completed


async def call(repo: Path | None, *args: str, **options: Any) -> Completed:
    """Like ``run``, without holding up the event loop."""
    import asyncio  # here, so that what has no event loop need not load it

    return await asyncio.to_thread(run, repo, *args, **options)


def dated(timestamp: int) -> dict[str, str]:
    """Give the environment that dates a commit: ``timestamp`` is seconds since 1970, in UTC."""
    return {"GIT_AUTHOR_DATE": f"@{timestamp} +0000", "GIT_COMMITTER_DATE": f"@{timestamp} +0000"}


@contextmanager
def _global_config(repositories: Sequence[Path]) -> Iterator[int]:
    """Open an in-memory file that names ``repositories`` as safe: nobody else can write it."""
    fd = memory_file("caisson-git", safe_config(str(path) for path in repositories).encode())
    try:
        yield fd
    finally:
        os.close(fd)


def _environment(config: int) -> dict[str, str]:
    return environment(
        path=os.environ.get("PATH", os.defpath),
        tmp=os.environ.get("TMPDIR", "/tmp"),  # noqa: S108  # what Git itself falls back to
        global_config=f"/proc/self/fd/{config}",
    )


def _carry_out(call: _Call, data: bytes, cwd: Path | None) -> Completed:
    stdin, stderr = memory_file("caisson-git", data), os.memfd_create("caisson-git", os.MFD_CLOEXEC)
    try:
        process = subprocess.Popen(
            call.argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=call.env,
            cwd=cwd,
            pass_fds=call.fds,
            start_new_session=True,
        )
        try:
            with closing(process.stdout):  # type: ignore[type-var]  # a pipe was asked for
                output = _read(process, call)
            returncode = process.wait(max(0.0, call.ends_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise GitFailed("timeout", f"git took too long: {' '.join(call.argv[-4:])[:200]}") from None
        finally:
            _end(process)
        size = os.fstat(stderr).st_size
        complaint = os.pread(stderr, 64 * 1024, max(0, size - 64 * 1024))
    finally:
        os.close(stdin)
        os.close(stderr)
    return Completed(returncode=returncode, stdout=output, stderr=complaint.decode("utf-8", "replace"))


def _read(process: subprocess.Popen[bytes], call: _Call) -> bytes:
    assert process.stdout is not None  # noqa: S101  # a pipe was asked for
    fd = process.stdout.fileno()
    parts: list[bytes] = []
    size = 0
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while True:
            left = call.ends_at - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise subprocess.TimeoutExpired(call.argv, 0)
            chunk = os.read(fd, 256 * 1024)
            if not chunk:
                return b"".join(parts)
            parts.append(chunk)
            size += len(chunk)
            if size > call.limit:
                raise GitFailed("too_big", f"git gave more than {call.limit} bytes")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
