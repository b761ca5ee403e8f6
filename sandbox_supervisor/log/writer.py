"""The thread that owns the database: whatever is queued becomes a group, groups become transactions."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from sandbox_supervisor.graph.rows import Change
from sandbox_supervisor.log.database import Committed, Database
from sandbox_supervisor.log.group import Ask, Commit, Item
from sandbox_supervisor.log.keeper import Keeper

T = TypeVar("T")
GROUP = 256  # commits in one transaction
GROUP_SECONDS = 0.01  # gathering what is queued takes no longer


class Writer:
    """``keeper`` is touched by the thread only, but for its attributes, which may be read."""

    def __init__(self, folder: Path, *, damaged_ok: bool) -> None:
        self.keeper = Keeper(folder)
        self._damaged_ok = damaged_ok
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._door = threading.Lock()
        self._closed = False
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)

    @classmethod
    def start(cls, folder: Path, *, damaged_ok: bool) -> "Writer":
        """Open the log in its own thread. Raises StorageCorrupt, StorageFull."""
        writer = cls(folder, damaged_ok=damaged_ok)
        writer._thread.start()
        writer._opened.result()
        return writer

    def ask(self, question: Callable[[Database], T]) -> "Future[T]":
        """Answer a question in the thread."""
        item: Ask[T] = Ask(question)
        self._enqueue(item)
        return item.future

    def commit(self, change: Change, *, durable: bool) -> "Future[Committed]":
        """Queue a commit."""
        item = Commit(change, durable)
        self._enqueue(item)
        return item.future

    def stop(self) -> None:
        """Finish what is queued and close."""
        with self._door:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _enqueue(self, item: Item) -> None:
        with self._door:
            if self._closed:
                raise RuntimeError("the log is closed")
            self._queue.put(item)

    # --- the thread ---

    def _run(self) -> None:
        try:
            self.keeper.open(damaged_ok=self._damaged_ok)
        except BaseException as error:  # noqa: BLE001 (the opener gets it)
            self.keeper.abandon()
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        while self._round():
            pass
        self.keeper.close()

    def _round(self) -> bool:
        """Do what is queued, or what is due when nothing is. False when it is time to close."""
        try:
            items = self._gather(self._queue.get(timeout=self.keeper.patience()))
        except Empty:
            self.keeper.rest()
            return True
        self.keeper.commit([item for item in items if isinstance(item, Commit)])
        for item in items:
            if isinstance(item, Ask):
                item.answer(self.keeper.database)
        return None not in items

    def _gather(self, first: Item | None) -> list[Item | None]:
        items = [first]
        until = time.monotonic() + GROUP_SECONDS
        while items[-1] is not None and len(items) < GROUP and time.monotonic() < until:
            try:
                items.append(self._queue.get_nowait())
            except Empty:
                break
        return items
