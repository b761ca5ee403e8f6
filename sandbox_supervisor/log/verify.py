"""Find out whether what is stored is what was written: at every start the newest part, on demand everything."""

import sqlite3

from sandbox_supervisor.graph.apply import EMPTY, apply
from sandbox_supervisor.graph.rows import Change, CommandRow, State
from sandbox_supervisor.log import chain, records
from sandbox_supervisor.log.anchor import Position
from sandbox_supervisor.log.chain import ChangeRecord, EventRecord
from sandbox_supervisor.log.database import Database
from sandbox_supervisor.log.errors import StorageCorrupt

TAIL_EVENTS = 5_000
TAIL_CHANGES = 1_000
QUICK_CHECK_BYTES = 16 * 1024 * 1024


def verify_start(database: Database, anchor: Position | None, size: int) -> None:
    """Check the anchor, every row, and the newest events and transitions. Raises StorageCorrupt.

    ``size`` is the database file's; SQLite's own check is left out above 16 MiB.
    """
    if size <= QUICK_CHECK_BYTES:
        _pragma(database.connection, "quick_check(1)")
    check_position(database, anchor)
    _check_events(database, max(0, database.head.seq - TAIL_EVENTS))
    _check_changes(database, max(0, database.head.change - TAIL_CHANGES))
    records.load(database.connection)


def verify_all(database: Database, anchor: Position | None) -> None:
    """Check pages, chains and numbering, and that the transitions give exactly the rows. Raises StorageCorrupt."""
    _pragma(database.connection, "integrity_check(1)")
    check_position(database, anchor)
    _check_events(database, 0)
    _check_changes(database, 0)
    _check_replay(database.connection)


def _pragma(connection: sqlite3.Connection, check: str) -> None:
    found = connection.execute(f"PRAGMA {check}").fetchone()
    if found is None or found[0] != "ok":
        raise StorageCorrupt(f"SQLite finds: {found[0] if found else 'nothing'}")


def check_position(database: Database, anchor: Position | None) -> None:
    """Check that the log reaches the anchor and passes through it. Raises StorageCorrupt."""
    head = database.head
    if anchor is None:
        if head.seq or head.change:
            raise StorageCorrupt("the anchor is missing")
        return
    if anchor.epoch != database.epoch:
        raise StorageCorrupt("the anchor belongs to another log")
    if head.seq < anchor.seq or head.change < anchor.change:
        raise StorageCorrupt(f"the log ends at event {head.seq}, but event {anchor.seq} had been committed")
    if _hex(database.event_chain(anchor.seq)) != anchor.chain:
        raise StorageCorrupt(f"event {anchor.seq} is not the one that was committed")
    if _hex(database.change_chain(anchor.change)) != anchor.change_chain:
        raise StorageCorrupt(f"transition {anchor.change} is not the one that was committed")


def _hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else ""


def _check_events(database: Database, after: int) -> None:
    previous = database.event_chain(after)
    rows = database.connection.execute(
        "SELECT seq, at, kind, node, generation, attempt, data, chain FROM events WHERE seq > ? ORDER BY seq", (after,)
    )
    expected = after
    for row in rows:
        expected += 1
        record = EventRecord(*row[:-1])
        if previous is None or record.seq != expected or chain.link_event(previous, record) != row[-1]:
            raise StorageCorrupt(f"event {expected} is damaged or missing")
        previous = row[-1]
    if expected != database.head.seq:
        raise StorageCorrupt(f"event {expected + 1} is damaged or missing")


def _check_changes(database: Database, after: int) -> None:
    previous = database.change_chain(after)
    rows = database.connection.execute(
        "SELECT id, first_seq, last_seq, body, chain FROM changes WHERE id > ? ORDER BY id", (after,)
    )
    expected = after
    for row in rows:
        expected += 1
        record = ChangeRecord(*row[:-1])
        if previous is None or record.id != expected or chain.link_change(previous, record) != row[-1]:
            raise StorageCorrupt(f"transition {expected} is damaged or missing")
        previous = row[-1]
    if expected != database.head.change:
        raise StorageCorrupt(f"transition {expected + 1} is damaged or missing")


def replay(connection: sqlite3.Connection) -> tuple[State, dict[str, CommandRow]]:
    """Rebuild every row from the transitions alone. Raises StorageCorrupt."""
    state, commands = EMPTY, {}
    for number, body in connection.execute("SELECT id, body FROM changes ORDER BY id"):
        change = records.unpack(body, Change, f"transition {number}")
        state = apply(state, change)
        if change.command:
            commands[change.command.id] = change.command
    return state, commands


def _check_replay(connection: sqlite3.Connection) -> None:
    state, commands = replay(connection)
    stored = records.load(connection)
    for name in ("graph", "nodes", "attempts", "requests", "timers", "intents"):
        if getattr(state, name) != getattr(stored, name):
            raise StorageCorrupt(f"the {name} do not follow from the transitions")
    keys = [row[0] for row in connection.execute("SELECT key FROM commands")]
    if {key: records.command(connection, key) for key in keys} != commands:
        raise StorageCorrupt("the commands do not follow from the transitions")
