"""The one connection's work: transitions in, events out. Runs in the log's thread only."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sandbox_supervisor.graph.rows import AttemptRow, Change, NewEvent
from sandbox_supervisor.log import chain, records
from sandbox_supervisor.log.anchor import Position
from sandbox_supervisor.log.chain import ChangeRecord, EventRecord
from sandbox_supervisor.log.errors import Superseded
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import Envelope, EventKind


class Committed(NamedTuple):
    """``change`` is what was stored: the one given, with the sequence numbers that only the log knows.

    A change without events has ``first_seq = last_seq + 1``.
    """

    first_seq: int
    last_seq: int
    change: Change


@dataclass(slots=True)
class Head:
    """Where the chains stand, in the open transaction or after it."""

    seq: int
    chain: bytes
    change: int
    change_chain: bytes

    def position(self, epoch: str, boot: int) -> Position:
        return Position(
            epoch=epoch,
            boot=boot,
            seq=self.seq,
            chain=self.chain.hex(),
            change=self.change,
            change_chain=self.change_chain.hex(),
        )


class Database:
    """``clock`` gives the RFC 3339 label of the present moment."""

    def __init__(self, connection: sqlite3.Connection, epoch: str, clock: Callable[[], str]) -> None:
        self.connection = connection
        self.epoch = epoch
        self._clock = clock
        self.head = self.read_head()

    def read_head(self) -> Head:
        """Read where the chains stand."""
        seq, event_chain = self._last("events", "seq", "events")
        change, change_chain = self._last("changes", "id", "changes")
        return Head(seq, event_chain, change, change_chain)

    def _last(self, table: str, column: str, what: str) -> tuple[int, bytes]:
        query = f"SELECT {column}, chain FROM {table} ORDER BY {column} DESC LIMIT 1"  # noqa: S608 (our own names)
        row = self.connection.execute(query).fetchone()
        return row or (0, chain.genesis(self.epoch, what))

    # --- writing: inside a transaction that the caller began ---

    def write(self, change: Change) -> Committed:
        """Store one transition. Raises Superseded; then the savepoint that the caller holds is to be rolled back."""
        first = self.head.seq + 1
        change = self._stamped(change, first)
        for event in change.events:
            self._write_event(event)
        self._write_rows(change)
        body = records.body_of(change)
        if body:
            self._write_change(first, body)
        return Committed(first, self.head.seq, change)

    def _stamped(self, change: Change, first: int) -> Change:
        """Fill in what the numbering of events decides."""
        command, attempts = change.command, change.attempts
        if command is not None and command.outcome.seq is None:
            done = [first + at for at, event in enumerate(change.events) if event.kind == EventKind.COMMAND_DONE]
            if done:
                command = replace(command, outcome=replace(command.outcome, seq=done[0]))
        if any(row.first_seq is None for row in attempts):
            seen: dict[str, int] = {}
            for at, event in enumerate(change.events):
                if event.attempt:
                    seen.setdefault(event.attempt, first + at)
            attempts = tuple(_first_seen(row, seen) for row in attempts)
        return replace(change, command=command, attempts=attempts)

    def _write_event(self, event: NewEvent) -> None:
        data = codec.canonical(event.data).decode()
        record = EventRecord(
            self.head.seq + 1, self._clock(), str(event.kind), event.node, event.generation, event.attempt, data
        )
        link = chain.link_event(self.head.chain, record)
        self.connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*record, link))
        self.head.seq, self.head.chain = record.seq, link

    def _write_change(self, first: int, body: bytes) -> None:
        record = ChangeRecord(self.head.change + 1, first, self.head.seq, body)
        link = chain.link_change(self.head.change_chain, record)
        self.connection.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?)", (*record, link))
        self.head.change, self.head.change_chain = record.id, link

    def _write_rows(self, change: Change) -> None:
        if change.graph:
            self._put("graph", "graph", change.graph.rev, change.graph)
        for node in change.nodes:
            self._put("nodes", node.key, node.rev, node)
        for attempt in change.attempts:
            self._put("attempts", str(attempt.id), attempt.rev, attempt)
        for request in change.requests:
            self._put("requests", request.id, request.rev, request)
        for timer in change.timers_set:
            self._set("timers", timer.id, timer)
        for key in change.timers_cleared:
            self.connection.execute("DELETE FROM timers WHERE key = ?", (key,))
        for intent in change.intents:
            self._want(intent.id, records.pack(intent))
        for key in change.intents_done:
            self._done(key)
        if change.command:
            self._take_command(change.command.id, records.pack(change.command))

    def _put(self, table: str, key: str, rev: int, row: Any) -> None:
        """Insert a row of rev 1, or replace the row that has the rev before."""
        body = records.pack(row)
        check = chain.row_check(table, key, rev, body)
        if rev == 1:
            query = f"INSERT INTO {table} VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608 (our own names)
            done = self.connection.execute(query, (key, rev, body, check))
        else:
            query = f'UPDATE {table} SET rev = ?, body = ?, "check" = ? WHERE key = ? AND rev = ?'  # noqa: S608
            done = self.connection.execute(query, (rev, body, check, key, rev - 1))
        if done.rowcount != 1:
            raise Superseded(f"{table} row {key} is not at rev {rev - 1}")

    def _set(self, table: str, key: str, row: Any) -> None:
        body = records.pack(row)
        query = f"INSERT OR REPLACE INTO {table} VALUES (?, 0, ?, ?)"  # noqa: S608 (our own names)
        self.connection.execute(query, (key, body, chain.row_check(table, key, 0, body)))

    def _want(self, key: str, body: bytes) -> None:
        check = chain.row_check("outbox", key, 0, body)
        self.connection.execute("INSERT INTO outbox VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING", (key, body, check))

    def _done(self, key: str) -> None:
        row = self.connection.execute("SELECT body FROM outbox WHERE key = ?", (key,)).fetchone()
        if row is not None:
            check = chain.row_check("outbox", key, 1, row[0])
            self.connection.execute('UPDATE outbox SET done = 1, "check" = ? WHERE key = ?', (check, key))

    def _take_command(self, key: str, body: bytes) -> None:
        check = chain.row_check("commands", key, 0, body)
        query = "INSERT INTO commands VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        if self.connection.execute(query, (key, body, check)).rowcount != 1:
            raise Superseded(f"command {key} is taken")

    # --- reading ---

    def events(self, after: int, limit: int) -> list[Envelope]:
        """Read a page of events."""
        query = "SELECT seq, at, kind, node, generation, attempt, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        return [self._envelope(EventRecord(*row)) for row in self.connection.execute(query, (after, limit)).fetchall()]

    def _envelope(self, record: EventRecord) -> Envelope:
        return Envelope(
            seq=record.seq,
            epoch=self.epoch,
            at=record.at,
            kind=record.kind,
            node=record.node,
            generation=record.generation,
            attempt=record.attempt,
            data=codec.decode(record.data, dict[str, Any]),
        )

    def event_chain(self, seq: int) -> bytes | None:
        """Give the chain value at ``seq``; before the first event there is the genesis."""
        if seq == 0:
            return chain.genesis(self.epoch, "events")
        row = self.connection.execute("SELECT chain FROM events WHERE seq = ?", (seq,)).fetchone()
        return row[0] if row else None

    def change_chain(self, change: int) -> bytes | None:
        """Give the chain value at transition ``change``."""
        if change == 0:
            return chain.genesis(self.epoch, "changes")
        row = self.connection.execute("SELECT chain FROM changes WHERE id = ?", (change,)).fetchone()
        return row[0] if row else None


def _first_seen(row: AttemptRow, seen: dict[str, int]) -> AttemptRow:
    return row if row.first_seq is not None else replace(row, first_seq=seen.get(str(row.id)))
