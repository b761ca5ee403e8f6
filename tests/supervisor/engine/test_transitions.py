"""A transition is whole: what is stored is applied, whoever stops waiting for it."""

import asyncio
from pathlib import Path

from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.facts import Dispatched, GateOpened, Restarted
from sandbox_supervisor.log import Log
from tests.supervisor.engine.scenario import command, specification


async def test_a_caller_that_is_cancelled_during_a_commit_tears_nothing_apart(tmp_path: Path):
    nodes = [command(f"n{number}", "true") for number in range(30)]
    spec = specification(tmp_path, "1" * 40, nodes)
    log = Log.open(tmp_path / "log")
    try:
        engine = Engine(spec, tmp_path, log, log.load())
        await engine.begin(kernel.initial(spec.flow, task="t"), Restarted(boot=1))
        await engine.take(GateOpened(round=1))
        for number, node in enumerate(nodes):
            caller = asyncio.create_task(engine.take(Dispatched(node=node.key)))
            for _ in range(number % 6):  # cancelled a little later each time: before, during and after the commit
                await asyncio.sleep(0)
            caller.cancel()
            await asyncio.wait([caller])
        await engine.settle()
        stored, _ = await log.read()
        assert engine.state == stored
        assert stored.attempts
    finally:
        await log.close()
