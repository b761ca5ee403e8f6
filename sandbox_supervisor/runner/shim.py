"""Hold one process tree: start it when told to, end it when told to, and say when nothing of it is left.

Run by path with an isolated interpreter (``python -I -S -B shim.py CONTROL_FD PARENT_PID``), so it imports a few small
modules of the standard library and nothing of ours. It is a child-subreaper: whatever a descendant does (double fork,
new session, cleared environment), it stays below the shim, and ``ECHILD`` is the kernel's word that the tree is empty.

On the control stream, one JSON value a line. In: the order ``{argv, env, cwd, fds, limits, wrappers}``, then ``"go"``,
``"term"``, ``"kill"``. Out: ``{identity}``, ``{started}`` or ``{failed}``, ``{exited: {code|signal}}``, ``{empty}``.
End of the stream, SIGTERM or the parent's death before ``go``: nothing is ever run; after it: everything is killed.
"""

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress

_PDEATHSIG, _DUMPABLE, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 36, 38
_FREE_FD = 64  # descriptors are parked from here on while they are put into place
_LONGEST_PAUSE = 0.05
_OOM_SCORE = 500


def prctl(option: int, value: int) -> None:
    """Raise OSError when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def boot_id() -> str:
    """Give boot and PID namespace: a pid means something only in both."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123  # pathlib is slow to import
        return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115


def stat(pid: int) -> tuple[int, int] | None:
    """Give parent and start time of a process that has not ended; None for a zombie or nothing."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def descendants(root: int) -> list[tuple[int, int, int]]:
    """Give (pid, start time, depth) of every living process below ``root``, nearest first.

    Parents are looked up for every process of the machine: the kernel's list of children is not built everywhere, and
    is kept per thread where it is.
    """
    children = _by_parent()
    found: list[tuple[int, int, int]] = []
    level, depth = [root], 1
    while level:
        below = [child for parent in level for child in children.get(parent, ())]
        found += [(pid, started, depth) for pid, started in below if started]
        level, depth = [pid for pid, _ in below], depth + 1
    return found


def children_of(root: int) -> list[tuple[int, int]]:
    """Give (pid, start time) of every child; a zombie has start time 0."""
    return _by_parent().get(root, [])


def _by_parent() -> dict[int, list[tuple[int, int]]]:
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (seen := _parent_and_start(int(name))):
            children.setdefault(seen[0], []).append((int(name), seen[1]))
    return children


def _parent_and_start(pid: int) -> tuple[int, int] | None:
    """Like ``stat``, but a zombie counts with start time 0: its threads may still have children."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[1]), 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def send(pid: int, started: int, number: int) -> None:
    """Signal exactly this process, never one that has been given its pid since."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if (now := stat(pid)) and now[1] == started:
            with suppress(OSError):
                signal.pidfd_send_signal(handle, signal.Signals(number))
    finally:
        os.close(handle)


def reap() -> dict[int, int] | None:
    """Collect ended children: pid → wait status. None once there is no child at all, so no descendant either."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended or None
        if pid == 0:
            return ended
        ended[pid] = status


class Shim:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.buffer = b""
        self.order: dict[str, object] = {}
        self.main: int | None = None
        self.ending = False  # everything is to die
        self.wake, wakeup = os.pipe()
        for fd in (self.wake, wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

    def _on_term(self, *_: object) -> None:
        self.ending = True

    def say(self, **what: object) -> None:
        """Tell the runner; if it is gone, everything is to die."""
        try:
            self.control.sendall(json.dumps(what).encode() + b"\n")
        except OSError:
            self.ending = True

    def lines(self, timeout: float | None) -> list[object]:
        """Wait for something to happen; give what the runner has said meanwhile. Its end sets ``ending``."""
        control = self.control.fileno()
        readable, _, _ = select.select([control, self.wake], [], [], timeout)
        if self.wake in readable:
            with suppress(BlockingIOError):
                os.read(self.wake, 4096)
        if control in readable:
            try:
                data = self.control.recv(256 * 1024)
            except OSError:
                data = b""
            if not data:
                self.ending = True
            self.buffer += data
        *whole, self.buffer = self.buffer.split(b"\n")
        return [json.loads(line) for line in whole]

    def run(self) -> int:
        """Live the whole life of the tree."""
        waiting: list[object] = []
        while not waiting and not self.ending:
            waiting = self.lines(None)
        if self.ending or not isinstance(waiting[0], dict):
            return 0
        self.order = waiting.pop(0)  # type: ignore[assignment]  # looked at one line above
        me = stat(os.getpid())
        self.say(identity={"pid": os.getpid(), "start_time": me[1] if me else 0, "boot_id": boot_id()})
        while not self.ending and self.main is None:
            for word in waiting or self.lines(None):
                if word != "go":
                    self.ending = True
                elif not self.ending and not self.start():
                    return 0
            waiting = []
        if self.main is not None:
            self.follow()
        self.say(empty=True)
        return 0

    def start(self) -> bool:
        """Fork the tree's first process; False (and a report) if the program could not be executed."""
        complaint, tell = os.pipe()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            become(self.order, tell, me)
        os.close(tell)
        for fd in self.order["fds"].values():  # type: ignore[attr-defined]  # the runner's own order
            os.close(fd)
        with os.fdopen(complaint, "rb") as file:
            message = file.read(4096)
        if message:
            os.waitpid(pid, 0)
            self.say(failed=message.decode("utf-8", "replace"))
            self.say(empty=True)
            return False
        self.main = pid
        self.say(started=pid)
        return True

    def follow(self) -> None:
        """Pass signals on and watch until the first process has ended; then empty the tree."""
        while not self.ending:
            ended = reap()
            if ended is None or self.main in ended:
                self.report(ended or {})
                break
            for word in self.lines(1.0):
                self.obey(word)
        self.empty()

    def obey(self, word: object) -> None:
        if word == "kill":
            self.ending = True
        elif word == "term":
            wrappers = int(self.order.get("wrappers", 0))  # type: ignore[call-overload]
            for pid, started, depth in descendants(os.getpid()):
                if depth > wrappers:  # bubblewrap itself would take everything with it at once
                    send(pid, started, signal.SIGTERM)

    def report(self, ended: dict[int, int]) -> None:
        if self.main in ended:
            code = os.waitstatus_to_exitcode(ended[self.main])
            self.say(exited={"code": code} if code >= 0 else {"signal": -code})
            self.main = -1

    def empty(self) -> None:
        """Stop and kill everything below until the kernel says that there is nothing.

        Stopping comes first, because what is stopped cannot fork while the next look is taken.
        """
        pause = 0.001
        while (ended := reap()) is not None:
            self.report(ended)
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid, started, _ in descendants(os.getpid()):
                    send(pid, started, number)
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def become(order: dict[str, object], tell: int, parent: int) -> None:
    """Turn this forked child into the ordered program. Never returns."""
    try:
        prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the shim died before the kernel was asked to tell
            os._exit(71)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        limit(order["limits"])  # type: ignore[arg-type]  # the runner's own order
        if not order.get("wrappers"):
            prctl(_NO_NEW_PRIVS, 1)
        tell = place(order["fds"], tell)  # type: ignore[arg-type]
        os.chdir(str(order["cwd"]))
        argv = [os.fsencode(str(word)) for word in order["argv"]]  # type: ignore[attr-defined]
        os.execvpe(argv[0], argv, order["env"])  # type: ignore[arg-type]  # a list, no shell
    except BaseException as error:  # noqa: BLE001  # the parent tells it; nothing else may run here
        with suppress(OSError):
            os.write(tell, str(error).encode()[:4096] or b"failed")
    finally:
        os._exit(127)


def limit(limits: dict[str, int]) -> None:
    """Apply the resource limits: ``data`` bytes of memory, ``nice``; and be the first to go when memory runs out."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if data := limits.get("data"):
        resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    with suppress(OSError):
        os.nice(limits.get("nice", 0))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(str(_OOM_SCORE))


def place(fds: dict[str, int], tell: int) -> int:
    """Put descriptors at their numbers, close all others, and give the new number of ``tell``."""
    import fcntl

    parked = {int(target): fcntl.fcntl(fd, fcntl.F_DUPFD, _FREE_FD) for target, fd in fds.items()}
    told = fcntl.fcntl(tell, fcntl.F_DUPFD, _FREE_FD)
    null = os.open("/dev/null", os.O_RDWR)
    highest = max([2, *parked])
    for target in range(highest + 1):
        os.dup2(parked.get(target, null), target, inheritable=True)
    kept = highest + 1
    os.dup2(told, kept, inheritable=False)
    os.closerange(kept + 1, 1 << 20)
    return kept


def main(argv: list[str]) -> int:
    """Serve one tree: control descriptor and the expected parent are the arguments."""
    control, parent = int(argv[0]), int(argv[1])
    prctl(_SUBREAPER, 1)
    prctl(_PDEATHSIG, signal.SIGTERM)
    prctl(_DUMPABLE, 0)
    os.set_inheritable(control, False)
    shim = Shim(socket.socket(fileno=control))
    if os.getppid() != parent:  # it died before the kernel was asked to tell
        return 71
    return shim.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
