"""Runners come and go, also while what the one before left behind is brought into safety."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar, cast

from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.runners import Runners
from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.facts import Dispatched, GateOpened, Prepared, Restarted, Spawned
from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.graph.rows import AttemptId
from sandbox_supervisor.log import Log
from sandbox_supervisor.protocol.states import AttemptState
from sandbox_supervisor.runner.gate import RunnerGate
from sandbox_supervisor.runner.link import RunnerLost, RunnerRefused
from tests.supervisor.engine.scenario import command, specification


class Dying:
    """A runner that is lost while the work of its predecessor's attempts is committed."""

    async def leftovers(self, identities: tuple[Identity, ...]) -> None:
        return

    async def commit(self, attempt: str, **_: Any) -> None:
        raise RunnerLost


class Lasting(Dying):
    """One that stays, and has no such tree."""

    class Hello:
        isolation: ClassVar[dict[str, str]] = {}

    hello = Hello

    async def commit(self, attempt: str, **_: Any) -> None:
        raise RunnerRefused("unknown_attempt", "no such tree")

    async def wait_lost(self) -> None:
        await asyncio.Event().wait()


class Gate:
    def __init__(self) -> None:
        self._coming = iter([Dying(), Dying(), Lasting()])

    async def accept(self) -> object:
        return next(self._coming)


async def test_a_runner_that_is_lost_while_leftovers_are_kept_is_followed_by_the_next(tmp_path: Path):
    spec = specification(tmp_path, "1" * 40, [command("one", "true"), command("two", "true")])
    log = Log.open(tmp_path / "log")
    try:
        engine = Engine(spec, tmp_path, log, log.load())
        await engine.begin(kernel.initial(spec.flow), Restarted(boot=1))
        await engine.take(GateOpened(round=1))
        for key in ("one", "two"):
            attempt = AttemptId(node=key, generation=1, n=1)
            await engine.take(Dispatched(node=key))
            await engine.take(Prepared(attempt=attempt, base_commit="1" * 40))
            await engine.take(Spawned(attempt=attempt, identity=Identity(pid=1, start_time=1, boot_id="boot")))
        connected = asyncio.Event()
        runners = Runners(engine, cast("RunnerGate", Gate()), lambda there: connected.set() if there else None)
        following = asyncio.create_task(runners.follow())
        waiting = asyncio.create_task(connected.wait())
        await asyncio.wait([following, waiting], timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert waiting.done()
        assert {row.state for row in engine.state.attempts.values()} == {AttemptState.INTERRUPTED}
        following.cancel()
        await asyncio.wait([following])
    finally:
        await log.close()
