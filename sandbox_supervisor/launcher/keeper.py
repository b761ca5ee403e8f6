"""Keep supervisor and runner up until told to stop; then end everything, trees first. One thread, no secrets."""

import os
import select
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from sandbox_supervisor import processes
from sandbox_supervisor.launcher.children import Children
from sandbox_supervisor.protocol import folder, handover
from sandbox_supervisor.protocol.identity import Process

SUPERVISOR_RESPAWNS, RESPAWN_WINDOW = 5, 60.0
RUNNER_GRACE, SUPERVISOR_GRACE = 8.0, 5.0
MATERIALISE_LIMIT = 15 * 60.0
LOG_LIMIT = 8 * 1024 * 1024  # bytes; one earlier log is kept
_LOOK_AROUND = 2.0  # how often the folder is looked for
_PROOF = 5.0


class Stop(Exception):  # a wish, not an error
    """End with ``code``."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class _Kept:
    """One process that is started again when it ends, with a growing pause."""

    def __init__(self, name: str, start: Callable[[], int], *, first_pause: float, longest_pause: float) -> None:
        self.name = name
        self.pid: int | None = None
        self.process: Process | None = None
        self.starts = 0
        self.due_at = 0.0
        self.ended_at: deque[float] = deque(maxlen=SUPERVISOR_RESPAWNS + 1)
        self._start = start
        self._first_pause, self._longest_pause = first_pause, longest_pause

    def start(self) -> None:
        """Start it; a start that fails counts as an end."""
        self.starts += 1
        try:
            self.pid = self._start()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is tried again, and the log has it
            sys.stderr.write(f"launcher: the {self.name} does not start: {type(error).__name__}: {error}\n")
            self.ended(time.monotonic())
            return
        self.process = Process.of(self.pid)  # not reaped yet, so the pid is still its own

    def ended(self, now: float) -> None:
        self.pid = self.process = None
        self.ended_at.append(now)
        recent = sum(1 for moment in self.ended_at if now - moment < RESPAWN_WINDOW)
        self.due_at = now + min(self._first_pause * 2 ** (recent - 1), self._longest_pause)

    def keeps_ending(self, now: float) -> bool:
        """Say whether it has used up its respawns of the last minute."""
        return len(self.ended_at) > SUPERVISOR_RESPAWNS and now - self.ended_at[0] < RESPAWN_WINDOW

    def identity(self) -> str:
        return self.process.text() if self.process and self.process.alive() else ""


class Keeper:
    """Runs until SIGTERM, the end of the folder, or a supervisor that cannot be kept up."""

    def __init__(self, place: Path, children: Children) -> None:
        self._place = place
        self._children = children
        self._folder = place.stat()
        self._asked_to_stop = False
        self._wake, self._alarm = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_whole = False  # materialisation has brought in everything
        self._hand_over: Callable[[], None] = lambda: None
        self._supervisor = _Kept("supervisor", self._start_supervisor, first_pause=0.05, longest_pause=1.0)
        self._runner = _Kept("runner", children.runner, first_pause=0.2, longest_pause=5.0)

    def run(self) -> int:
        self._listen_to_signals()
        try:
            self._materialise()
            self._keep_up()
        except Stop as stop:
            sys.stderr.write(f"launcher: {stop}\n")
            self._end_everything()
            return stop.code

    def _listen_to_signals(self) -> None:
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._alarm, warn_on_full_buffer=False)

    def _on_term(self, *_: object) -> None:
        self._asked_to_stop = True

    def _start_supervisor(self) -> int:
        """Start a supervisor, which begins when it is handed its secrets: at once, but not before all is there."""
        pid, self._hand_over = self._children.supervisor()
        if self._is_whole:
            self._hand_over()
        return pid

    def _materialise(self) -> None:
        """Bring in repository and capabilities. Raises Stop when that fails.

        The supervisor loads its code meanwhile; that is most of its start.
        """
        pid = self._children.materialise()
        self._supervisor.start()
        self._tell("materialising")  # they are at work while the disk writes it
        self._children.load()
        ends_at = time.monotonic() + MATERIALISE_LIMIT
        while (code := self._collect().get(pid)) is None:
            self._check()
            if time.monotonic() > ends_at:
                raise self._materialisation_failed(f"not done after {MATERIALISE_LIMIT:.0f} s")
            self._wait(_LOOK_AROUND)
        if code != 0:
            raise self._materialisation_failed(f"it ended with exit code {code}")
        self._is_whole = True
        self._hand_over()

    def _materialisation_failed(self, cause: str) -> Stop:
        """Make sure that a failure is written down; what materialisation itself has written stays."""
        failure = folder.MaterialisationFailure(
            code="materialisation_failed", stage="materialise", item="", cause=f"{cause}; see {folder.LOG}"
        )
        handover.write_once(self._place / folder.FAILURE, failure)
        return Stop(folder.EXIT_MATERIALISATION, f"materialisation failed: {cause}")

    def _keep_up(self) -> NoReturn:
        """Start what is due, note what has ended. Ends by Stop only."""
        while True:
            self._collect()
            self._check()
            now = time.monotonic()
            due = [kept for kept in (self._supervisor, self._runner) if kept.pid is None and kept.due_at <= now]
            for kept in due:
                kept.start()
            if due:
                self._tell("running")
            waits = [kept.due_at - now for kept in (self._supervisor, self._runner) if kept.pid is None]
            self._wait(min([_LOOK_AROUND, *waits]))

    def _collect(self) -> dict[int, int]:
        """Note what has ended: pid → exit code, or minus the signal. Raises Stop when that was too often."""
        now, ended = time.monotonic(), processes.reap()
        for pid, code in ended.items():
            for kept in (self._supervisor, self._runner):
                if kept.pid == pid:
                    sys.stderr.write(f"launcher: the {kept.name} has ended ({code})\n")
                    kept.ended(now)
        if self._supervisor.keeps_ending(now):
            raise Stop(folder.EXIT_SUPERVISOR, "the supervisor keeps ending")
        return ended

    def _check(self) -> None:
        if self._asked_to_stop:
            raise Stop(0, "asked to stop")
        if not self._is_folder_there():
            raise Stop(folder.EXIT_FOLDER_GONE, "the folder has gone")
        self._bound_log()

    def _bound_log(self) -> None:
        """Start the log anew when it has grown too long: its writers append, so they go on at its new end."""
        log = self._place / folder.LOG
        with suppress(OSError):
            if log.stat().st_size > LOG_LIMIT:
                shutil.copyfile(log, log.with_suffix(".log.1"))
                os.truncate(log, 0)

    def _is_folder_there(self) -> bool:
        """Say whether the path still leads to the folder of the start, and not to one that has taken its place."""
        try:
            found = self._place.stat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (self._folder.st_dev, self._folder.st_ino)

    def _wait(self, seconds: float) -> None:
        select.select([self._wake], [], [], max(0.0, seconds))
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end_everything(self) -> None:
        """Ask the runner, whose trees end with it, then the supervisor; kill what does not go, until none is left."""
        self._tell("stopping")
        supervisor = self._supervisor.pid if self._supervisor.identity() else None
        self._end(self._runner, RUNNER_GRACE)
        while not processes.kill_descendants(_PROOF, spare=supervisor):
            sys.stderr.write("launcher: something below the runner does not end\n")
        self._end(self._supervisor, SUPERVISOR_GRACE)
        while not processes.kill_descendants(_PROOF):
            sys.stderr.write("launcher: something does not end\n")

    def _end(self, kept: _Kept, grace: float) -> None:
        process = kept.process
        if process is None or not process.signal(signal.SIGTERM):
            return
        ends_at = time.monotonic() + grace
        while process.alive() and time.monotonic() < ends_at:
            self._wait(0.1)
            processes.reap()
        process.signal(signal.SIGKILL)

    def _tell(self, phase: str) -> None:
        status = folder.Status(
            phase=phase,
            supervisor=self._supervisor.identity(),
            runner=self._runner.identity(),
            supervisor_starts=self._supervisor.starts if self._is_whole else 0,  # till then none has begun
            runner_starts=self._runner.starts,
        )
        if not self._is_folder_there():
            return
        with suppress(OSError):  # a full disk or a vanished folder ends nothing by itself
            handover.replace(self._place / folder.STATUS, status)
