"""Give ready nodes their attempts, and fire timers when they are due."""

import asyncio
import logging

from sandbox_supervisor.engine import clock
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.facts import Dispatched, TimerFired
from sandbox_supervisor.graph.rows import Change
from sandbox_supervisor.protocol.flow import NodeKind

LONGEST_SLEEP = 15.0  # seconds; the loop's own clock stands still while the machine sleeps

WITHOUT_RUNNER = frozenset({NodeKind.APPROVAL, NodeKind.DELIVERY})

logger = logging.getLogger(__name__)


class Scheduler:
    """Woken by every commit and by ``wake``. What may start, and in which order, is the kernel's decision."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.runner_ready = False
        self._dispatch = asyncio.Event()
        self._timers = asyncio.Event()
        engine.watchers.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        if change.nodes or change.attempts or change.graph or change.timers_cleared:
            self._dispatch.set()
        if change.timers_set or change.timers_cleared:
            self._timers.set()

    def wake(self) -> None:
        """Look again: a runner came, or space returned."""
        self._dispatch.set()
        self._timers.set()

    async def dispatch(self) -> None:
        """Dispatch for ever."""
        while True:
            self._dispatch.clear()
            while key := self._next():
                if await self._start(key) is None:
                    break
            if self.engine.log.full:
                await self.engine.log.wait_space(LONGEST_SLEEP)
            else:
                await self._dispatch.wait()

    async def fire_timers(self) -> None:
        """Fire due timers for ever."""
        while True:
            self._timers.clear()
            due = {timer.id: timer.since + timer.remaining for timer in self.engine.state.timers.values()}
            instant = clock.instant()
            for timer in sorted((known for known in due if due[known] <= instant), key=due.__getitem__):
                await self.engine.take(TimerFired(timer=timer))
            pause = min([LONGEST_SLEEP, *(at - instant for at in due.values() if at > instant)])
            try:
                async with asyncio.timeout(pause):
                    await self._timers.wait()
            except TimeoutError:
                continue

    def _next(self) -> str | None:
        engine = self.engine
        if engine.log.full:
            return None
        for key in kernel.ready(engine.spec.flow, engine.state, engine.spec.limits, engine.spec.drivers):
            if self.runner_ready or engine.node(key).kind in WITHOUT_RUNNER:
                return key
        return None

    async def _start(self, key: str) -> object:
        try:
            return await self.engine.take(Dispatched(node=key))
        except Refusal as refusal:
            logger.warning("dispatch.refused node=%s code=%s", key, refusal.code)
            return None
