"""Follow runners as they come and go; end what a lost one left behind before the next one works."""

import asyncio
import logging
from collections.abc import Callable

from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.keeping import keep_work
from sandbox_supervisor.graph.facts import Interrupted
from sandbox_supervisor.graph.rows import AttemptRow
from sandbox_supervisor.protocol.states import ATTEMPT_ENDED
from sandbox_supervisor.runner.gate import RunnerGate
from sandbox_supervisor.runner.link import RunnerLink, RunnerLost

logger = logging.getLogger(__name__)


class Runners:
    """``link`` gives the runner of the moment. Whoever asks for it while there is none gets RunnerLost."""

    def __init__(self, engine: Engine, gate: RunnerGate, on_change: Callable[[bool], None]) -> None:
        self._engine = engine
        self._gate = gate
        self._on_change = on_change
        self._link: RunnerLink | None = None
        self.isolation: dict[str, str] = {}

    def link(self) -> RunnerLink:
        """Raises RunnerLost."""
        if self._link is None:
            raise RunnerLost
        return self._link

    async def drop(self) -> None:
        """End the connection to the runner, which then ends every tree and comes back. Repeating is safe."""
        if self._link is not None:
            await self._link.close()

    @property
    def connected(self) -> bool:
        return self._link is not None

    async def follow(self) -> None:
        """Accept one runner after the other, for ever.

        Attempts that had a process when the last runner (or the last supervisor) went are interrupted first: their
        trees are proven empty, then their work is kept, then the fact is committed.
        """
        cause = "the supervisor was restarted"
        while True:
            link = await self._gate.accept()
            logger.info("runner.connected")
            try:
                await self._end_leftovers(link, cause)
                self.isolation = dict(link.hello.isolation)
                self._link = link
                self._on_change(True)
                await link.wait_lost()
            except* RunnerLost:
                logger.warning("runner.lost while its predecessor's trees were ended")
            self._link = None
            cause = "the runner was lost"
            logger.warning("runner.lost")
            self._on_change(False)

    async def _end_leftovers(self, link: RunnerLink, cause: str) -> None:
        victims = [row for row in self._engine.state.attempts.values() if _had_process(row)]
        if not victims:
            return
        await link.leftovers(tuple(row.identity for row in victims if row.identity))
        if self._engine.log.damage:
            return
        async with asyncio.TaskGroup() as group:
            for row in victims:
                group.create_task(self._interrupt(link, row, cause), name=f"interrupt {row.id}")

    async def _interrupt(self, link: RunnerLink, row: AttemptRow, cause: str) -> None:
        wip = await keep_work(self._engine, link, row)
        live = lambda state: state.attempts[str(row.id)].state not in ATTEMPT_ENDED  # noqa: E731
        await self._engine.take(Interrupted(attempt=row.id, cause=cause, wip_commit=wip), only_if=live)


def _had_process(row: AttemptRow) -> bool:
    return row.identity is not None and row.state not in ATTEMPT_ENDED
