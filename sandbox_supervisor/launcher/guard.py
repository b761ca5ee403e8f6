"""Detach the launcher from whoever started it, and put a guard above it that leaves nothing running when it ends."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sandbox_supervisor import processes
from sandbox_supervisor.protocol import codec, folder, handover
from sandbox_supervisor.protocol.identity import Process

_READY = b"ready"
_ROUND = 5.0  # seconds


def detach(place: Path, launch: Callable[[Callable[[], None]], int]) -> int:
    """Run ``launch(ready)`` in a process that outlives this one; return as soon as it has called ``ready`` or ended.

    Gives 0, or the exit code of a launcher that ended before. A guard, the launcher's parent, adopts every orphan
    below it; when the launcher has ended in whatever way, the guard ends them all and then writes how it was.
    """
    heard, told = os.pipe()
    if os.fork():
        os.close(told)
        return _listen(heard)
    os.close(heard)
    os.setsid()
    os.chdir("/")
    processes.become_subreaper()
    _ignore_terminal()
    guard = os.getpid()
    launcher = os.fork()
    if launcher == 0:
        os._exit(_guarded(launch, told, guard))
    close_stdin()  # the secrets are the launcher's alone
    os._exit(_guard(launcher, place, told))


def _listen(heard: int) -> int:
    with os.fdopen(heard, "rb") as pipe:
        said = pipe.read(len(_READY))
        if said == _READY:
            return 0
        return int(said or b"1")


def _guarded(launch: Callable[[Callable[[], None]], int], told: int, guard: int) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until there is something to end in order
    processes.follow_parent(guard, signal.SIGTERM)

    def ready() -> None:
        with suppress(OSError):  # whoever waited has gone
            os.write(told, _READY)
        os.close(told)

    try:
        return launch(ready)
    except Exception as error:  # noqa: BLE001  # the edge: say it in the log and end
        sys.stderr.write(f"launcher: {type(error).__name__}: {error}\n")
        return folder.EXIT_SUPERVISOR
    finally:
        sys.stderr.flush()


def _guard(launcher: int, place: Path, told: int) -> int:
    identity = Process.of(launcher)
    _, status = os.waitpid(launcher, 0)
    code = os.waitstatus_to_exitcode(status)
    with suppress(OSError):
        os.write(told, str(abs(code)).encode())
    os.close(told)
    while not processes.kill_descendants(_ROUND):
        pass
    _write_exit(place, launcher, identity, code)
    return 0


def _write_exit(place: Path, launcher: int, identity: Process | None, code: int) -> None:
    """Say how it ended, if this launcher was the sandbox's own and the folder is still there."""
    with suppress(OSError, codec.Malformed):
        record = handover.read(place / folder.RECORD, folder.Record)
        if record is None or record.pid != launcher or (identity and record.launcher != identity):
            return
        how = folder.Exit(code=code) if code >= 0 else folder.Exit(signal=-code)
        handover.write_once(place / folder.EXIT, how)


def close_stdin() -> None:
    """Put nothing where standard input was."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _ignore_terminal() -> None:
    """Outlive terminals and orderly stops, which are the launcher's. SIG_IGN would be inherited through exec."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGTERM):
        signal.signal(number, _nothing)


def _nothing(_number: int, _frame: object) -> None:
    pass
