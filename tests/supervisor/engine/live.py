"""Run a supervisor inside the test's own event loop, with a real runner as a process of its own."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox_supervisor import isolation
from sandbox_supervisor.engine.running import Options, Running, supervise
from sandbox_supervisor.engine.storage import GRACE
from sandbox_supervisor.graph.rows import State
from sandbox_supervisor.materialise.repository import bring_in
from sandbox_supervisor.protocol.messages import Command, CommandOutcome, CommandVerb
from sandbox_supervisor.standalone import Alone, keep_runner
from tests.supervisor.engine.scenario import Sandbox

PATIENCE = 60.0


@asynccontextmanager
async def live(
    sandbox: Sandbox,
    *,
    gate: bool = True,
    runner: bool = True,
    patience: Any = (1, 0.5, 0.5),
    grace: float = GRACE,
    early: bool = False,
) -> AsyncIterator[Running]:
    """Give a running supervisor; ``gate`` opens every round, ``patience`` is how long a cancel escalates (seconds),
    ``grace`` how long the disk may be full. With ``early`` it may not have begun yet."""
    for part in ("ctl", "work"):
        (sandbox.folder / part).mkdir(parents=True, exist_ok=True)
    bring_in(sandbox.folder / "repo", sandbox.spec.repository)
    up: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    nonce = secrets.token_hex(8)
    alone = Alone(answer_first=False, stay=True)

    async def tell(running: Running) -> None:
        if not (running.engine.log.damage or early):
            await running.engine.begun()
        if not up.done():  # a second one only reads, after damage
            up.set_result(running)

    async def run_runner(_: Running) -> None:
        await keep_runner(sandbox.folder, nonce, isolation.choose("none"), ["--patience", *map(str, patience)])

    services = (tell, *((alone.open_gate,) if gate else ()), *((run_runner,) if runner else ()))
    task = asyncio.create_task(
        supervise(
            Options(
                spec=sandbox.spec,
                folder=sandbox.folder,
                nonce=nonce,
                task_token="cst_test.key.mac",
                services=services,
                storage_grace=grace,
            )
        )
    )
    test = asyncio.current_task()
    task.add_done_callback(lambda done: test.cancel() if not done.cancelled() and done.exception() and test else None)
    try:
        either: list[asyncio.Future[Any]] = [task, up]
        await asyncio.wait(either, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield up.result()
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()):
            raise error


async def until(running: Running, holds: Callable[[State], bool]) -> State:
    """Wait for a committed state, with an end to patience."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await running.engine.until(holds)
    except TimeoutError:
        state = running.engine.state
        rows = [f"{row.key} {row.state} {row.failure}" for row in state.nodes.values()]
        raise AssertionError("\n".join([f"graph {state.graph.state}", *rows])) from None


async def connected(running: Running) -> None:
    """Wait until a runner is there."""
    async with asyncio.timeout(PATIENCE):
        while not running.runners.connected:
            await running.facade.wait_urgent(1.0)


async def appears(path: Path) -> None:
    """Wait for a file that something in a sandbox makes."""
    async with asyncio.timeout(PATIENCE):
        while not path.exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.02)


_commands = iter(range(1, 10_000))


async def send(running: Running, verb: CommandVerb, **arguments: Any) -> CommandOutcome:
    """Send a person's command under a fresh id."""
    name = arguments.pop("id", f"command-{next(_commands)}")
    return await running.facade.submit(Command(id=name, verb=verb, actor="ada", **arguments))
