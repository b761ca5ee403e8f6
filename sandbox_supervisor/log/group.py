"""What waits in the log's queue, and one group of it as one transaction."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from sandbox_supervisor.graph.rows import Change
from sandbox_supervisor.log import boot, crashpoints
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.log.database import Committed, Database
from sandbox_supervisor.log.errors import StorageCorrupt, Superseded

T = TypeVar("T")


class Ask(Generic[T]):
    """A question for the thread."""

    def __init__(self, question: Callable[[Database], T]) -> None:
        self.future: Future[T] = Future()
        self._question = question

    def answer(self, database: Database) -> None:
        """Answer it, if anybody still waits."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._question(database))
        except sqlite3.DatabaseError as error:
            self.future.set_exception(StorageCorrupt(f"the log cannot be read: {error}"))
        except Exception as error:  # noqa: BLE001 (whoever asked gets it)
            self.future.set_exception(error)


class Commit:
    """A transition that waits to be stored."""

    def __init__(self, change: Change, durable: bool) -> None:
        self.change = change
        self.durable = durable
        self.future: Future[Committed] = Future()

    def tell(self, result: Committed | Exception) -> None:
        """Give the outcome to whoever waits."""
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


Item = Ask[Any] | Commit


def write_group(database: Database, commits: list[Commit], *, durable: bool) -> list[Committed | Exception]:
    """Store a group in one transaction; give each its own outcome, in order.

    One that is refused leaves the others alone. Raises sqlite3.Error when the group could not be stored; then it is
    rolled back.
    """
    connection = database.connection
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        results = [_write_one(database, item.change) for item in commits]
        boot.store(connection, boot.sign_of_life())
        crashpoints.hit(Point.BEFORE_COMMIT)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    crashpoints.hit(Point.AFTER_COMMIT)
    return results


def _write_one(database: Database, change: Change) -> Committed | Exception:
    connection, before = database.connection, database.head
    database.head = type(before)(before.seq, before.chain, before.change, before.change_chain)
    connection.execute("SAVEPOINT one")
    try:
        result: Committed | Exception = database.write(change)
    except (Superseded, UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        connection.execute("ROLLBACK TO one")
        database.head = before
        result = error
    connection.execute("RELEASE one")
    return result


def is_full(error: Exception) -> bool:
    """Say whether an error means that the disk is full."""
    return _code(error) == sqlite3.SQLITE_FULL


def is_of_disk(error: Exception) -> bool:
    """Say whether an error is about reading and writing files, whatever they hold."""
    return _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)


def _code(error: Exception) -> int:
    """Give SQLite's primary code; 0 for any other error."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
