"""Keep in mind what the sandbox takes of disk and memory: looked at now and then, because looking costs."""

import asyncio
import os

from sandbox_supervisor.consumption import disk_of, memory_of
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.runners import Runners
from sandbox_supervisor.runner.link import RunnerLost, RunnerRefused, Taken

PERIOD = 60.0  # seconds between two looks
EARLY = 5.0  # seconds until the next look while there is no runner to ask
RUNNER_PATIENCE = 30.0
OF_THE_RUNNER = frozenset({"work"})  # the supervisor touches no attempt's tree


class Consumption:
    """``disk`` and ``memory`` are bytes as of the last look; 0 before the first one."""

    def __init__(self, engine: Engine, runners: Runners) -> None:
        self._engine = engine
        self._runners = runners
        self._below = Taken()
        self._looking = asyncio.Lock()
        self.disk = 0
        self.memory = 0

    async def follow(self) -> None:
        """Look for ever."""
        while True:
            answered = await self.look()
            await asyncio.sleep(PERIOD if answered else EARLY)

    async def look(self) -> bool:
        """Measure, one look at a time. False when the runner could not be asked: then its last figures stand."""
        async with self._looking:
            return await self._look()

    async def _look(self) -> bool:
        own = await asyncio.to_thread(disk_of, self._engine.folder, without=OF_THE_RUNNER)
        answered = True
        try:
            async with asyncio.timeout(RUNNER_PATIENCE):
                self._below = await self._runners.link().taken()
        except (RunnerLost, RunnerRefused, TimeoutError):
            answered = False
        self.disk = own + self._below.disk
        self.memory = memory_of([os.getpid()]) + self._below.memory
        return answered
