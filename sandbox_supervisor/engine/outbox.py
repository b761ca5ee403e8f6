"""Carry out committed intents, each in a named task of its own, and once more after every start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from sandbox_supervisor.control import ControlEnded
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.rows import Change, Intent
from sandbox_supervisor.log import StorageCorrupt, crashpoints
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.runner.link import RunnerLost

Handler = Callable[[Intent], Awaitable[None]]

logger = logging.getLogger(__name__)


class Outbox:
    """Starts what is open in ``engine.state.intents``. A handler reports facts; the kernel closes its intent.

    A handler that returns without having closed its intent (the runner is away) is tried again by ``revive``.
    ``on_error`` is told of a handler that broke.
    """

    def __init__(
        self,
        engine: Engine,
        group: asyncio.TaskGroup,
        handlers: Mapping[EffectKind, Handler],
        on_error: Callable[[Intent, Exception], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._group = group
        self._handlers = handlers
        self._on_error = on_error
        self._running: dict[str, asyncio.Task[None]] = {}
        self._parked: set[str] = set()
        self._closed = False
        engine.watchers.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        if change.intents:
            self.reconcile()

    def reconcile(self) -> None:
        """Start every open intent that is neither under way nor parked."""
        if self._closed:
            return
        self._parked &= self._engine.state.intents.keys()
        for intent in self._engine.state.intents.values():
            if intent.id not in self._running and intent.id not in self._parked:
                task = self._group.create_task(self._carry_out(intent), name=f"effect {intent.id}")
                self._running[intent.id] = task

    def close(self) -> None:
        """Start nothing more: what is open is for the next supervisor."""
        self._closed = True

    def revive(self) -> None:
        """Try again what was parked."""
        self._parked.clear()
        self.reconcile()

    async def withdraw(self, *ids: str) -> None:
        """Stop carrying out these intents; returns when nothing of them is under way."""
        tasks = [task for known in ids if (task := self._running.get(known)) and task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def finished(self, known: str) -> None:
        """Wait until this intent is not under way."""
        if task := self._running.get(known):
            await asyncio.wait([task])

    async def _carry_out(self, intent: Intent) -> None:
        try:
            crashpoints.hit(Point.BEFORE_EFFECT)
            await self._handlers[EffectKind(intent.kind)](intent)
            crashpoints.hit(Point.AFTER_RECORD)
        except Exception as error:  # noqa: BLE001 (the edge: a broken handler must not take the supervisor down)
            await self._judge(intent, _innermost(error))
        finally:
            self._running.pop(intent.id, None)
            if intent.id in self._engine.state.intents:
                self._parked.add(intent.id)

    async def _judge(self, intent: Intent, error: Exception) -> None:
        match error:
            case RunnerLost() | ControlEnded():
                logger.info("effect.parked id=%s: %s", intent.id, error)
            case StorageCorrupt():
                raise error
            case _:
                logger.error("effect.broken id=%s", intent.id, exc_info=error)
                with suppress(RunnerLost):  # then its attempt is interrupted
                    await self._on_error(intent, error)


def _innermost(error: Exception) -> Exception:
    """Give the first error of a handler's task groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
