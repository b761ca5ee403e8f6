"""Which process is meant: a pid alone is reused, so its start time and the machine's boot stand beside it. Linux."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_GONE = frozenset("ZXx")


def boot_id() -> str:
    """Give the id that the kernel chose at this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Give the clock ticks after boot at which ``pid`` started; None if it does not run (a zombie does not)."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in _GONE else int(fields[19])


def stat_fields(pid: int) -> list[str] | None:
    """Give ``/proc/<pid>/stat`` from the state (field 3) on; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of one boot; never another that has been given its pid."""

    pid: int
    start_time: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """Identify a running process."""
        started = start_time(pid)
        return None if started is None else cls(pid=pid, start_time=started, boot_id=boot_id())

    @classmethod
    def parse(cls, text: str) -> "Process":
        """Read ``text()`` back. Raises ValueError."""
        boot, pid, started = text.split(":")
        return cls(pid=int(pid), start_time=int(started), boot_id=boot)

    def text(self) -> str:
        return f"{self.boot_id}:{self.pid}:{self.start_time}"

    def alive(self) -> bool:
        return start_time(self.pid) == self.start_time and boot_id() == self.boot_id

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to exactly this process; False if it is gone. Raises PermissionError."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():  # the handle pins whoever has the pid now, so this answer stays true
                return False
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                return True
            return False
        finally:
            os.close(handle)
