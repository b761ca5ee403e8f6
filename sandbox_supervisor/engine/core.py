"""Take facts one at a time: kernel, log, state in memory, then everybody who watches."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sandbox_supervisor.engine import clock
from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.facts import Commanded, Fact, Progress, Restarted
from sandbox_supervisor.graph.rows import AttemptRow, Change, State
from sandbox_supervisor.log import Committed, Log, StorageFull
from sandbox_supervisor.protocol.flow import Node
from sandbox_supervisor.protocol.messages import Command, CommandOutcome, OutcomeCode
from sandbox_supervisor.protocol.spec import TaskSpecification
from sandbox_supervisor.protocol.states import ATTEMPT_ENDED

SPACE_PATIENCE = 5.0  # seconds between two tries to commit on a full disk
SPACE_LOOK = 0.5  # seconds between two looks at a disk whose fullness no commit has met with yet

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Engine:
    """Owns the state of the graph. ``state`` is what the log holds, replaced as a whole after each commit."""

    def __init__(self, spec: TaskSpecification, folder: Path, log: Log, state: State) -> None:
        self.spec = spec
        self.folder = folder
        self.repo = folder / "repo"
        self.log = log
        self.state = state
        self.watchers: list[Callable[[Change], None]] = []
        self._nodes = {node.key: node for node in spec.flow.all_nodes()}
        self._lock = asyncio.Lock()
        self._commanding = asyncio.Lock()
        self._begun = asyncio.Event()
        self._transitions: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    def node(self, key: str) -> Node:
        return self._nodes[key]

    def attempt(self, attempt: str) -> AttemptRow:
        return self.state.attempts[attempt]

    def is_live(self, attempt: str) -> bool:
        """Say whether the attempt exists and has not ended."""
        row = self.state.attempts.get(attempt)
        return row is not None and row.state not in ATTEMPT_ENDED

    async def take(
        self, fact: Fact, *, durable: bool = True, only_if: Callable[[State], bool] = lambda _: True
    ) -> Committed | None:
        """Commit what ``fact`` means. None: it means nothing (any more), or ``only_if`` no longer holds.

        Blocks until ``begin`` has returned, and while the disk is full: nothing is dropped. What an attempt that is to
        stop still says may then use the space that is kept for transitions, so that it can end. Raises Refusal,
        StorageCorrupt.
        """
        await self._begun.wait()

        def work() -> Coroutine[Any, Any, Committed | None]:
            return self._take(fact, durable=durable or self._is_to_stop(fact), only_if=only_if)

        return await self._in_space(type(fact).__name__, work)

    async def _in_space(self, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work, again and again while there is no space for what it commits."""
        while True:
            try:
                return await self._whole(work())
            except StorageFull:
                logger.warning("storage.full: %s waits for space", what)
                await self.log.wait_space(SPACE_PATIENCE)

    def _is_to_stop(self, fact: Fact) -> bool:
        row = self.state.attempts.get(str(fact.attempt)) if isinstance(fact, Progress) else None
        return row is not None and row.cancel_reason is not None

    async def _take(self, fact: Fact, *, durable: bool, only_if: Callable[[State], bool]) -> Committed | None:
        async with self._lock:
            if not only_if(self.state):
                return None
            change = kernel.step(self.spec.flow, self.state, fact, clock.now())
            return await self._commit(change, durable=durable) if change != Change() else None

    async def begin(self, rows: Change, fact: Restarted) -> None:
        """Commit the rows of a new graph, if these are any, and that a supervisor has taken over; then facts are taken.

        Blocks while the disk is full. Raises StorageCorrupt.
        """
        if rows != Change():
            await self._in_space("a new graph", lambda: self._store(rows))
        await self._in_space("a start", lambda: self._take(fact, durable=True, only_if=lambda _: True))
        self._begun.set()

    async def begun(self) -> None:
        """Return once ``begin`` has."""
        await self._begun.wait()

    async def _store(self, change: Change) -> Committed:
        async with self._lock:
            return await self._commit(change, durable=True)

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the work come to its end even if its caller is cancelled: what is stored must also be applied."""
        task = asyncio.create_task(work, name="transition")
        self._transitions.add(task)
        task.add_done_callback(self._transitions.discard)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait for transitions whose callers did not."""
        while self._transitions:
            await asyncio.wait(set(self._transitions))

    async def command(self, command: Command) -> CommandOutcome:
        """Carry out a person's command once; the same id again gives the first outcome."""
        async with self._commanding:
            return await self._command(command)

    async def _command(self, command: Command) -> CommandOutcome:
        known = await self.log.command(command.id)
        if known is not None:
            if known.digest == kernel.command_digest(command):
                return known.outcome
            message = f"Command {command.id} was sent before with another body; choose another id."
            return CommandOutcome(code=OutcomeCode.REFUSED, reason="command_id_reused", message=message)
        try:
            committed = await self.take(Commanded(command=command))
        except Refusal as refusal:
            return await self._refused(command, refusal)
        if committed is None or committed.change.command is None:
            return CommandOutcome(code=OutcomeCode.DONE, seq=self.log.head().seq)
        return committed.change.command.outcome

    async def _refused(self, command: Command, refusal: Refusal) -> CommandOutcome:
        row = kernel.refused(command, refusal)
        if command.id:
            with suppress(StorageFull):
                await self._whole(self._store(Change(command=row)))
        return row.outcome

    async def until(self, holds: Callable[[State], bool]) -> State:
        """Wait for the first committed state of which ``holds`` is true."""
        while not holds(self.state):
            changed = self._changed
            await changed.wait()
        return self.state

    async def _commit(self, change: Change, *, durable: bool) -> Committed:
        committed = await self.log.commit(change, durable=durable)
        self.state = kernel.apply(self.state, committed.change)
        self._changed.set()
        self._changed = asyncio.Event()
        for watcher in self.watchers:
            watcher(committed.change)
        return committed
