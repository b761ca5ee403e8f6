"""Start, find and stop the embedded product: Redis, web, worker and beat under a process manager."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import xmlrpc.client
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from supervisor.xmlrpc import SupervisorTransport

from config.commands import code
from config.commands.processes import Layout, manager_settings
from config.commands.terminal import say

START_PATIENCE = 60.0  # seconds until the console must answer
STOP_PATIENCE = 60.0
TOLD = 300  # characters of a line of a log; one may hold a whole traceback
GLANCE = 0.1  # seconds between two looks
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ProductProblem(Exception):
    """The product cannot be started or stopped; the message says what, where and how to fix it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What is known of a running product."""

    pid: int
    port: int
    code: str  # fingerprint of what it was started from
    programs: dict[str, str]  # name → the process manager's word (RUNNING, BACKOFF, …)


def running(layout: Layout) -> Running | None:
    """Say what runs on this state directory, None when nothing does or what runs is being stopped."""
    try:
        with _manager(layout) as manager:
            programs = {str(each["name"]): str(each["statename"]) for each in manager.supervisor.getAllProcessInfo()}
            pid = int(manager.supervisor.getPID())
    except (OSError, HTTPException, xmlrpc.client.Error):
        return None
    told = json.loads(_told_file(layout).read_text(encoding="utf-8"))
    return Running(pid=pid, port=int(told["port"]), code=str(told.get("code", "")), programs=programs)


def start(layout: Layout) -> None:
    """Start the product, which must not run, and wait until its console answers. Call it under ``alone``.

    The processes are detached: they outlive the caller. A start that fails or is interrupted leaves none of them.
    Raises ProductProblem.
    """
    layout.manager_config.write_text(manager_settings(layout), encoding="utf-8")
    told = {"port": layout.port, "code": code.fingerprint(layout.checkout)}
    _told_file(layout).write_text(json.dumps(told), encoding="utf-8")
    manager = None
    try:
        with _interruptions_held():  # or one might come before the new process is known
            manager = _spawn(layout)
        _wait_until_answering(layout, manager)
    except BaseException:
        if manager:
            _end(manager)
        raise


def stop(layout: Layout) -> bool:
    """End beat, worker, web and Redis in this order and wait; False when nothing ran. Sandboxes are left alone."""
    found = running(layout)
    if found is None:
        return await_end(layout)
    with _manager(layout) as manager, suppress(xmlrpc.client.Fault):  # another hand was quicker
        manager.supervisor.shutdown()
    _wait_until_gone(found.pid)
    return True


def await_end(layout: Layout) -> bool:
    """Wait for a product that is being stopped; False when there is none. Raises ProductProblem."""
    try:
        with _manager(layout) as manager:
            manager.supervisor.getState()
    except xmlrpc.client.Fault:  # its only refusal: it is shutting down
        _wait_until_gone(int((layout.run / "supervisord.pid").read_text()))
        return True
    except (OSError, HTTPException):
        pass
    return False


def follow(found: Running) -> None:
    """Return when the process manager of this product has ended."""
    _wait_until_gone(found.pid, patience=None)


@contextmanager
def _interruptions_held() -> Iterator[None]:
    """Let an interruption wait until the end. Blocked signals would not do: another thread might be given one."""
    if threading.current_thread() is not threading.main_thread():  # none is interrupted
        yield
        return
    came: list[int] = []
    heard = {number: signal.getsignal(number) for number in INTERRUPTIONS}
    heard = {number: handler for number, handler in heard.items() if handler not in {signal.SIG_IGN, None}}
    for number in heard:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)
        for interruption in came:
            signal.raise_signal(interruption)


def _spawn(layout: Layout) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "CAISSON_STATE_DIR": str(layout.state),
        "CAISSON_PORT": str(layout.port),
        "PYTHONPATH": str(layout.checkout),
        "PYTHONUNBUFFERED": "1",
    }
    with layout.manager_log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "--configuration", str(layout.manager_config)],
            cwd=layout.checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _end(manager: subprocess.Popen[bytes]) -> None:
    """End a process manager that has just been started, in order; its programs are tied to it."""
    manager.terminate()
    try:
        manager.wait(timeout=STOP_PATIENCE)
    finally:
        manager.kill()


def _told_file(layout: Layout) -> Path:
    return layout.run / "product.json"


def _wait_until_answering(layout: Layout, manager: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + START_PATIENCE
    while not _answers(layout.port):
        if manager.poll() is not None:
            raise ProductProblem(
                f"the process manager ended at once (exit {manager.returncode}): {_tail(layout.manager_log)}"
            )
        if time.monotonic() > give_up_at:
            raise ProductProblem(
                f"the console did not answer within {START_PATIENCE:.0f} s: {_tail(layout.state / 'logs/web.log')}"
            )
        time.sleep(GLANCE)


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def require_free(port: int) -> None:
    """Raise ProductProblem when the port of the console cannot be used."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            why = "another program has it, or another state directory's product"
            if error.errno == errno.EACCES:
                why = "it is kept for root"
            raise ProductProblem(
                f"port {port} on 127.0.0.1 cannot be used ({error.strerror}): {why}. "
                "Choose another one: ./caisson up --port N, or set CAISSON_PORT."
            ) from None


def _wait_until_gone(pid: int, patience: float | None = STOP_PATIENCE) -> None:
    give_up_at = None if patience is None else time.monotonic() + patience
    while _exists(pid):
        if give_up_at is not None and time.monotonic() > give_up_at:
            raise ProductProblem(f"the process manager (pid {pid}) has not ended within {patience:.0f} s")
        time.sleep(GLANCE)


def _exists(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n  ".join(["", *(line[:TOLD] for line in lines[-12:]), f"(from {log})"])


@contextmanager
def _manager(layout: Layout) -> Iterator[Any]:
    transport = SupervisorTransport(None, None, f"unix://{layout.manager_socket}")
    proxy = xmlrpc.client.ServerProxy("http://manager", transport=transport)
    try:
        yield proxy
    finally:
        transport.close()


@contextmanager
def alone(layout: Layout) -> Iterator[None]:
    """Let one command at a time prepare, start or remove what is in the state directory."""
    with (layout.run / "product.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another ./caisson is starting the product; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
