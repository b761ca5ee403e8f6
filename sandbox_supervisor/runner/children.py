"""Know which children the runner started itself, so that any other child is an orphan of a shim that was killed.

The runner is a subreaper: where no PID namespace holds a tree together, what a killed shim leaves comes to the runner.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from sandbox_supervisor.runner import shim

_PAUSE = 0.005


class Children:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls = 0
        self._shims: set[int] = set()

    def start(self, argv: Sequence[str], pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
        """Start a long-lived child that is to be waited for with ``wait``."""
        with self._changed:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath}, cwd="/", pass_fds=pass_fds,
            )  # fmt: skip
            self._shims.add(process.pid)
            return process

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        with self._changed:
            self._shims.discard(process.pid)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Stand around whatever starts short-lived children of its own (Git)."""
        with self._changed:
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def sweep(self) -> None:
        """Kill and reap every child that was not started here, and all below it; returns when there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._calls == 0)
            while strays := self._strays():
                for pid, started in strays:
                    for below, since, _ in shim.descendants(pid):
                        shim.send(below, since, signal.SIGKILL)
                    shim.send(pid, started, signal.SIGKILL)
                    with suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
                time.sleep(_PAUSE)

    def _strays(self) -> list[tuple[int, int]]:
        """Give the children that are not ours; a zombie has start time 0."""
        return [(pid, started) for pid, started in shim.children_of(os.getpid()) if pid not in self._shims]


children = Children()
