"""Rows to bytes and back, and the whole state read from the tables."""

import sqlite3
from dataclasses import replace
from typing import Any, TypeVar

from sandbox_supervisor.graph.rows import (
    AttemptRow,
    Change,
    CommandRow,
    GraphRow,
    Intent,
    NodeRow,
    RequestRow,
    State,
    TimerRow,
)
from sandbox_supervisor.log.chain import row_check
from sandbox_supervisor.log.errors import StorageCorrupt
from sandbox_supervisor.protocol import codec

T = TypeVar("T")


def pack(value: Any) -> bytes:
    """Give the canonical bytes of a row."""
    return codec.canonical(value)


def unpack(body: bytes, into: type[T], what: str) -> T:
    """Read a row back. Raises StorageCorrupt."""
    try:
        return codec.decode(body, into)
    except codec.Malformed as error:
        raise StorageCorrupt(f"{what} cannot be read: {error}") from None


def body_of(change: Change) -> bytes:
    """Give what a transition leaves in the log beside its events; empty when it changes no row."""
    bare = replace(change, events=())
    return b"" if bare == Change() else pack(bare)


def load(connection: sqlite3.Connection) -> State:
    """Read every row, checking each. Raises StorageCorrupt."""
    graphs = _rows(connection, "graph", GraphRow)
    return State(
        graph=graphs.get("graph", GraphRow()),
        nodes=_rows(connection, "nodes", NodeRow),
        attempts=_rows(connection, "attempts", AttemptRow),
        requests=_rows(connection, "requests", RequestRow),
        timers=_rows(connection, "timers", TimerRow),
        intents=_open_intents(connection),
    )


def _rows(connection: sqlite3.Connection, table: str, into: type[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    query = f'SELECT key, rev, body, "check" FROM {table} ORDER BY rowid'  # noqa: S608 (our own names)
    for key, rev, body, check in connection.execute(query):
        if check != row_check(table, key, rev, body):
            raise StorageCorrupt(f"{table} row {key} is damaged")
        found[key] = unpack(body, into, f"{table} row {key}")
    return found


def _open_intents(connection: sqlite3.Connection) -> dict[str, Intent]:
    found: dict[str, Intent] = {}
    for key, done, body, check in connection.execute('SELECT key, done, body, "check" FROM outbox ORDER BY rowid'):
        if check != row_check("outbox", key, done, body):
            raise StorageCorrupt(f"outbox row {key} is damaged")
        if not done:
            found[key] = unpack(body, Intent, f"outbox row {key}")
    return found


def command(connection: sqlite3.Connection, key: str) -> CommandRow | None:
    """Read one command's row. Raises StorageCorrupt."""
    row = connection.execute('SELECT body, "check" FROM commands WHERE key = ?', (key,)).fetchone()
    if row is None:
        return None
    if row[1] != row_check("commands", key, 0, row[0]):
        raise StorageCorrupt(f"commands row {key} is damaged")
    return unpack(row[0], CommandRow, f"commands row {key}")
