"""``launch --folder DIR``: become the one launcher of a sandbox. Secrets come on standard input, as one JSON object."""

import argparse
import fcntl
import os
import secrets
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sandbox_supervisor import processes
from sandbox_supervisor.launcher import guard
from sandbox_supervisor.launcher.certificate import make_certificate
from sandbox_supervisor.launcher.children import Children, Instance
from sandbox_supervisor.launcher.keeper import Keeper
from sandbox_supervisor.protocol import codec, folder, handover
from sandbox_supervisor.protocol.identity import Process

HOST = "127.0.0.1"
_SECRETS_LIMIT = 256 * 1024
_BACKLOG = 128
_FOLDERS = ("log", "ctl", "work")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="launch")
    parser.add_argument("--folder", type=Path, required=True)
    place = parser.parse_args(argv).folder
    return guard.detach(place, partial(launch, place))


def launch(place: Path, ready: Callable[[], None]) -> int:
    """Claim the sandbox, say so, take the secrets, keep its processes up until told to stop. Gives the exit code."""
    os.umask(0o077)
    processes.become_subreaper()
    processes.forbid_dump()
    lock = _lock(place)
    if lock is None:
        return folder.EXIT_LOCKED
    order = handover.read(place / folder.ORDER, folder.Order)
    if order is None:
        return folder.EXIT_FOLDER_GONE
    if (place / folder.TERMINATED).exists():
        return folder.EXIT_TERMINATED
    instance = _claim(place, order)
    if instance is None:
        return folder.EXIT_USED
    handover.replace(place / folder.STATUS, folder.Status(phase="starting"))
    ready()
    return _run(place, order, instance)


def _lock(place: Path) -> int | None:
    """Take the folder's lock for as long as this process lives; None if another launcher has it."""
    fd = os.open(place / folder.LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _claim(place: Path, order: folder.Order) -> Instance | None:
    """Become the sandbox's instance; None if it has had one already."""
    if (place / folder.RECORD).exists():
        return None
    listening = socket.create_server((HOST, 0), backlog=_BACKLOG)
    certificate = make_certificate(order.name, HOST)
    me, above = Process.of(os.getpid()), Process.of(os.getppid())
    if me is None or above is None:
        raise RuntimeError("the launcher cannot see itself in /proc")
    record = folder.Record(
        pid=me.pid,
        start_time=me.start_time,
        boot_id=me.boot_id,
        guard_pid=above.pid,
        guard_start_time=above.start_time,
        host=HOST,
        port=listening.getsockname()[1],
        fingerprint=certificate.fingerprint,
    )
    if not handover.write_once(place / folder.RECORD, record):
        return None
    return Instance(identity=me.text(), listening=listening, certificate=certificate)


def _run(place: Path, order: folder.Order, instance: Instance) -> int:
    try:
        bundle = codec.decode(handover.read_to_end(0, _SECRETS_LIMIT), dict[str, dict[str, str]])
    except ValueError as error:  # codec.Malformed names the path, never the value
        sys.stderr.write(f"launcher: the secrets on standard input are not readable: {error}\n")
        failure = folder.MaterialisationFailure(
            code="secrets_unreadable", stage="launch", item="secrets", cause="standard input held no readable bundle"
        )
        handover.write_once(place / folder.FAILURE, failure)
        return folder.EXIT_MATERIALISATION
    finally:
        guard.close_stdin()
    for name in _FOLDERS:
        (place / name).mkdir(mode=0o700, exist_ok=True)
    children = Children(place=place, order=order, instance=instance, secrets=bundle, nonce=secrets.token_hex(32))
    return Keeper(place, children).run()
