"""Run a supervisor until it is told to end, and say in the exit code how it ended."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

from sandbox_supervisor.engine.running import FolderGone
from sandbox_supervisor.log import AlreadyLocked, StorageCorrupt

EXIT_SPECIFICATION, EXIT_FOLDER_GONE, EXIT_FULL, EXIT_CORRUPT, EXIT_LOCKED = 65, 66, 73, 74, 75

Work = Callable[[], Awaitable[None]]


def run(work: Work) -> int:
    """Do the work until it ends, or until SIGTERM or SIGINT. Gives 0 or one of the exit codes above."""
    code = 0
    try:
        asyncio.run(_until_told(work))
    except* FolderGone:
        code = EXIT_FOLDER_GONE
    except* AlreadyLocked as error:
        sys.stderr.write(f"another supervisor holds the log: {error.exceptions[0]}\n")
        code = EXIT_LOCKED
    except* StorageCorrupt as error:
        sys.stderr.write(f"the log cannot even be read: {error.exceptions[0]}\n")
        code = EXIT_CORRUPT
    return code


async def _until_told(work: Work) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    task = asyncio.ensure_future(work())
    ending = asyncio.create_task(told.wait(), name="signals")
    await asyncio.wait([task, ending], return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()
