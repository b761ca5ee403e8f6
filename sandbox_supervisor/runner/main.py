"""The runner process: connects to the supervisor, does what it asks, and lets no tree outlive the connection."""

import argparse
import asyncio
import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

from sandbox_supervisor.isolation import Isolation, Tier
from sandbox_supervisor.processes import become_subreaper, die_with_parent, forbid_dump
from sandbox_supervisor.runner.environment import NONCE
from sandbox_supervisor.runner.execution import Ladder
from sandbox_supervisor.runner.operations import Place
from sandbox_supervisor.runner.service import serve

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


def main(argv: list[str]) -> int:
    """Serve until told to end, until the ``ctl`` folder is gone, or until the parent is."""
    nonce = take_nonce()
    forbid_dump()
    become_subreaper()
    die_with_parent(signal.SIGTERM)
    if not nonce:
        return 64
    return asyncio.run(_run(_place(_arguments(argv)), nonce))


def take_nonce() -> str:
    """Take the nonce out of the environment, also out of what /proc shows of it."""
    nonce = os.environ.pop(NONCE, "")
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123  # read once, in bytes
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # fields 50 and 51: where the environment was put at exec
    block = ctypes.string_at(start, end - start)
    for at in range(len(block) if nonce else 0):
        if block.startswith(NONCE.encode() + b"=", at) and (at == 0 or block[at - 1] == 0):
            ctypes.memset(start + at, 0, len(NONCE) + 1 + len(os.fsencode(nonce)))
    return nonce


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sandbox_supervisor runner")
    parser.add_argument("--folder", type=Path, help="stands for --ctl-dir, --work and --repo below it")
    parser.add_argument("--ctl-dir", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--repo", type=Path)
    parser.add_argument("--image", type=Path)
    parser.add_argument("--isolation", choices=[tier.value for tier in Tier], default=Tier.NONE.value)
    parser.add_argument("--isolation-reason", default="")
    parser.add_argument("--bwrap", default="")
    parser.add_argument("--memory", type=int, default=0, help="bytes of data each process may have; 0: no limit")
    parser.add_argument("--patience", type=float, nargs=3, metavar=("CANCEL", "CLOSE", "TERM"), default=None)
    arguments = parser.parse_args(argv)
    for name, below in (("ctl_dir", "ctl"), ("work", "work"), ("repo", "repo")):
        if getattr(arguments, name) is None:
            if arguments.folder is None:
                parser.error(f"--folder or --{name.replace('_', '-')} is needed")
            setattr(arguments, name, arguments.folder / below)
    return arguments


def _place(arguments: argparse.Namespace) -> Place:
    ladder = Ladder()
    if arguments.patience:
        cancel, close, term = arguments.patience
        ladder = Ladder(cancel=cancel, close=close, term=term)
    isolation = Isolation(
        tier=Tier(arguments.isolation),
        reason=arguments.isolation_reason,
        bwrap=Path(arguments.bwrap) if arguments.bwrap else None,
    )
    return Place(
        work=arguments.work.resolve(),
        repo=arguments.repo.resolve(),
        ctl=arguments.ctl_dir.resolve(),
        image=arguments.image.resolve() if arguments.image else None,
        isolation=isolation,
        memory=arguments.memory,
        ladder=ladder,
    )


async def _run(place: Place, nonce: str) -> int:
    parent = os.getppid()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    pause = FIRST_PAUSE
    while not ending.is_set() and place.ctl.is_dir() and os.getppid() == parent:
        if await _serve_once(place, nonce, ending):
            pause = FIRST_PAUSE
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await ending.wait()
        pause = min(pause * 2, LONGEST_PAUSE)
    return 0


async def _serve_once(place: Place, nonce: str, ending: asyncio.Event) -> bool:
    """Serve one connection until it or this process ends; False if there was none. Afterwards no tree is left."""
    serving = asyncio.create_task(serve(place, nonce), name="serve")
    stop = asyncio.create_task(ending.wait(), name="stop")
    await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    serving.cancel()
    try:
        return await serving
    except asyncio.CancelledError:
        return True


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
