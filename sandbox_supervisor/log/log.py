"""The log as the supervisor sees it: commits and reads, carried out by the one thread that owns the file."""

import asyncio
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from sandbox_supervisor.graph.rows import Change, CommandRow, State
from sandbox_supervisor.log import records
from sandbox_supervisor.log.artefacts import ArtefactStore
from sandbox_supervisor.log.database import Committed, Database
from sandbox_supervisor.log.errors import AlreadyLocked, StorageFull
from sandbox_supervisor.log.outputs import OutputStore
from sandbox_supervisor.log.space import NO_SPACE
from sandbox_supervisor.log.writer import Writer
from sandbox_supervisor.protocol.events import Envelope
from sandbox_supervisor.protocol.messages import Head

T = TypeVar("T")
PAGE = 500
SPACE_LOOK = 1.0  # seconds between looks for space, should storage.recovered itself not have fitted in


class Log:
    """One open log. Its coroutines belong to one event loop; ``load`` and ``verify`` block and are for the start."""

    def __init__(self, lock: int, writer: Writer, outputs: OutputStore, artefacts: ArtefactStore) -> None:
        self._lock = lock
        self._writer = writer
        self._keeper = writer.keeper
        self._moved: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        writer.keeper.on_move = self._on_move
        self.outputs = outputs
        self.artefacts = artefacts

    @classmethod
    def open(cls, folder: Path, *, damaged_ok: bool = False, attempt_log: int = 64 * 1024 * 1024) -> "Log":
        """Lock the folder, create or check the log, count one more boot.

        Raises AlreadyLocked, StorageCorrupt. With ``damaged_ok`` a damaged log opens for reading: ``damage`` says what
        is wrong, reads give what can still be read, commits raise StorageCorrupt. One of which nothing can be read
        raises all the same.

        An existing log opens without a byte of space, too: then it is ``full`` and commits wait. Raises StorageFull
        when there is no space to make one.
        """
        lock = -1
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _lock(folder)
            outputs = OutputStore(folder / "outputs", cap=attempt_log)
            artefacts = ArtefactStore(folder / "artefacts")
            return cls(lock, Writer.start(folder, damaged_ok=damaged_ok), outputs, artefacts)
        except BaseException as error:
            if lock >= 0:
                os.close(lock)
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                raise StorageFull(f"no space to open the log: {error.strerror}") from None
            raise

    # --- facts that need no waiting ---

    @property
    def epoch(self) -> str:
        return self._keeper.facts.epoch

    @property
    def boot(self) -> int:
        """How often this log was opened, this time included."""
        return self._keeper.facts.boot

    @property
    def created(self) -> bool:
        """True when this opening made the log."""
        return self._keeper.facts.boot == 1

    @property
    def alive_until(self) -> float | None:
        """Instant of the last commit of the supervisor before this one; None when there was none."""
        return self._keeper.facts.alive_until

    @property
    def same_boot(self) -> bool:
        """False when the machine was rebooted since the last commit."""
        return self._keeper.facts.same_boot

    @property
    def damage(self) -> str | None:
        """What is wrong with the log; then it only reads."""
        return self._keeper.damage

    @property
    def full(self) -> bool:
        """The disk is full: state commits live off the ballast, output waits."""
        return self._keeper.full

    @property
    def full_since(self) -> float | None:
        """Since when the disk is full (``time.monotonic``); None: it is not."""
        return self._keeper.full_since

    def is_scarce(self) -> bool:
        """Say whether the disk is full, also if no commit has met with it yet."""
        return self._keeper.is_scarce()

    def head(self) -> Head:
        """Give the newest committed event."""
        return self._keeper.told_head

    def durable_head(self) -> Head:
        """Give the newest event that survives the machine's death, too: the one to report to the control plane."""
        return self._keeper.durable_head

    # --- blocking, for the start ---

    def load(self) -> State:
        """Read all rows. Raises StorageCorrupt."""
        return self._ask(lambda database: records.load(database.connection)).result()

    def verify(self, *, full: bool = True) -> None:
        """Check the log, everything or as at a start. Raises StorageCorrupt."""
        self._ask(lambda _: self._keeper.check(full=full)).result()

    # --- asynchronous ---

    async def commit(self, change: Change, *, durable: bool = True) -> Committed:
        """Store one transition, atomically; what is queued meanwhile shares its sync.

        Without ``durable`` it survives the death of the process, and the machine's as soon as a later durable commit is
        done. An empty change stores nothing. Raises Superseded, StorageFull, StorageCorrupt; then nothing was stored.
        Cancelling the call does not say whether it was stored.
        """
        if change == Change():
            seq = self.head().seq
            return Committed(seq + 1, seq, change)
        return await asyncio.wrap_future(self._writer.commit(change, durable=durable))

    async def command(self, key: str) -> CommandRow | None:
        """Look a command up by its id."""
        return await asyncio.wrap_future(self._ask(lambda database: records.command(database.connection, key)))

    async def events(self, after: int, limit: int = PAGE) -> list[Envelope]:
        """Give up to ``limit`` (at most 500) events with ``seq > after``, in order."""
        if after >= self.head().seq:
            return []
        wanted = max(0, min(limit, PAGE))
        return await asyncio.wrap_future(self._ask(lambda database: database.events(after, wanted)))

    async def read(self) -> tuple[State, int]:
        """Read all rows and the seq they stand for, in one moment."""
        return await asyncio.wrap_future(
            self._ask(lambda database: (records.load(database.connection), database.head.seq))
        )

    async def wait_past(self, seq: int, timeout: float) -> bool:
        """Return True as soon as the head is beyond ``seq``, False after ``timeout`` seconds."""
        self._loop = asyncio.get_running_loop()
        deadline = self._loop.time() + timeout
        while True:
            moved = self._moved = self._moved or self._loop.create_future()
            if self.head().seq > seq:
                return True
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            await asyncio.wait([moved], timeout=left)

    def _on_move(self) -> None:
        """In the log's thread, after the head has moved. Whoever waits made the future before looking at the head."""
        if self._moved is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        moved, self._moved = self._moved, None
        if moved is not None:
            moved.set_result(None)

    async def wait_space(self, timeout: float) -> bool:
        """Return True as soon as the disk is not full, False after ``timeout`` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while self.full and (left := deadline - loop.time()) > 0:
            await self.wait_past(self.head().seq, min(left, SPACE_LOOK))  # storage.recovered moves the head
        return not self.full

    async def acknowledge(self, head: Head) -> None:
        """Take note of the head that the control plane knows. Raises StorageCorrupt when this log does not contain it;
        then the log refuses every further commit."""
        await asyncio.wrap_future(self._ask(lambda _: self._keeper.acknowledged(head)))

    async def close(self) -> None:
        """Finish what is queued, checkpoint and unlock. Repeating is safe."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Like ``close``, blocking."""
        if self._lock >= 0:
            self._writer.stop()
            os.close(self._lock)
            self._lock = -1

    def _ask(self, question: Callable[[Database], T]) -> "Future[T]":
        return self._writer.ask(question)


def _lock(folder: Path) -> int:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise AlreadyLocked(f"another process has the log in {folder} open") from None
    return lock
