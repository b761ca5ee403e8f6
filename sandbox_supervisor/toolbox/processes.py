"""Run other programs with a time limit that holds for everything they start."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TAIL = 4000  # bytes of output that are kept for a reason
LAST_READS = 16  # of at most 64 KiB, after the program has ended


@dataclass(frozen=True, slots=True)
class Done:
    """``code`` None means that the time was up."""

    code: int | None
    tail: str

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.tail.splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant of the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        return max(0.0, self.at - time.monotonic())


def run(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], deadline: Deadline) -> Done:
    """Run a program to its end or to the deadline, its output passed on; the whole session is killed at the end."""
    sys.stdout.write(f"$ {' '.join(argv)[:500]}\n")
    sys.stdout.flush()
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Done(127, f"{argv[0]}: {error.strerror}")
    try:
        return _follow(process, deadline)
    finally:
        _end(process)


def _follow(process: subprocess.Popen[bytes], deadline: Deadline) -> Done:
    """Copy output until the program has ended or the time is up.

    A daemon that keeps the pipe open, or goes on writing to it, is not waited for.
    """
    if process.stdout:
        os.set_blocking(process.stdout.fileno(), False)
    tail = b""
    reads_left = LAST_READS
    while True:
        code = process.poll()  # before reading: what was written before the end is read after it
        chunk = _read(process)
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
        tail = (tail + chunk)[-TAIL:]
        reads_left -= code is not None
        if not deadline.left or (code is not None and not (chunk and reads_left)):
            return Done(code, tail.decode("utf-8", "replace"))
        if not chunk:
            _wait(process, min(0.2, deadline.left))


def _read(process: subprocess.Popen[bytes]) -> bytes:
    return (process.stdout.read(65536) or b"") if process.stdout else b""


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()
