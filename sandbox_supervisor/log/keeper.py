"""What the log's thread keeps in order: database, anchor, ballast, and what others may know of them."""

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sandbox_supervisor.graph.rows import Change, NewEvent
from sandbox_supervisor.log import boot, crashpoints, schema, verify
from sandbox_supervisor.log.anchor import Anchor, Position
from sandbox_supervisor.log.boot import Facts
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.log.database import Committed, Database
from sandbox_supervisor.log.errors import StorageCorrupt, StorageFull
from sandbox_supervisor.log.group import Commit, is_full, is_of_disk, write_group
from sandbox_supervisor.log.space import Ballast
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.messages import Head

IDLE = 2.0  # seconds without work before the write-ahead log is emptied
RECHECK = 1.0  # seconds between looks at a full disk
WAL_LIMIT = 64 * 1024 * 1024
KEPT_WAL = "log.sqlite3-wal.damaged"


def _label() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Keeper:
    """Its methods run in the log's thread; its attributes may be read from anywhere."""

    facts: Facts
    told_head: Head  # what others may know of: durable where durability was asked for
    durable_head: Head  # what survives the machine, too
    database: Database
    _connection: sqlite3.Connection | None = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._anchor = Anchor(folder / "anchor")
        self._ballast = Ballast(folder / "ballast")
        self._dirty = False  # the write-ahead log holds something
        self._guarded = False  # the disk is big enough for a ballast
        self.on_move: Callable[[], None] = lambda: None
        self.damage: str | None = None
        self.full_since: float | None = None  # time.monotonic

    @property
    def full(self) -> bool:
        return self.full_since is not None

    def is_scarce(self) -> bool:
        """Say whether the disk is full, also if no commit has met with it yet."""
        return self.full or self._ballast.is_needed()

    # --- opening and closing ---

    def open(self, *, damaged_ok: bool) -> None:
        """Open, create or check everything. Raises StorageCorrupt, StorageFull; then ``abandon`` is due."""
        scarce = self._ballast.is_needed()
        self._guarded = scarce and self._ballast.release()
        try:
            self._connection = schema.connect(self._folder / "log.sqlite3")
            self._open_checked(self._connection, damaged_ok=damaged_ok)
        except sqlite3.DatabaseError as error:
            if is_full(error) or (scarce and is_of_disk(error)):
                raise StorageFull("no space to open the log") from None
            raise StorageCorrupt(f"SQLite finds: {error}") from None
        if self.damage is None and not self._take_over():
            scarce = True
        if self.damage is None and scarce:
            self._say_full()
        elif self.damage is None:
            self._guarded = self._ballast.hold()

    def abandon(self) -> None:
        """Let go of what a failed opening holds."""
        self._keep_wal()
        if self._connection is not None:
            self._connection.close()
        self._anchor.close()

    def _keep_wal(self) -> None:
        """Copy the write-ahead log of a damaged log aside: SQLite empties it when the connection is closed."""
        wal = self._folder / "log.sqlite3-wal"
        with suppress(OSError):
            if wal.stat().st_size and not (self._folder / KEPT_WAL).exists():
                shutil.copyfile(wal, self._folder / KEPT_WAL)

    def _open_checked(self, connection: sqlite3.Connection, *, damaged_ok: bool) -> None:
        meta = boot.read_or_create(connection)
        self.database = Database(connection, meta["epoch"], _label)
        self._tell()
        self.durable_head = self.told_head
        try:
            self.check(full=False)
        except StorageCorrupt as error:
            if not damaged_ok:
                raise
            self.damage = str(error)
        anchor = self._readable_anchor()
        self.facts = boot.facts(meta, counted=anchor.boot if anchor else 0)
        if anchor:
            self._anchor.write(replace(anchor, boot=self.facts.boot))
            self.durable_head = Head(seq=anchor.seq, chain=anchor.chain)

    def _readable_anchor(self) -> Position | None:
        try:
            return self._anchor.read()
        except StorageCorrupt:
            return None

    def _take_over(self) -> bool:
        """Make everything up to the head durable, and say so in the anchor. False when there is no space for it."""
        try:
            boot.write(self.database.connection, self.facts)
        except sqlite3.Error as error:
            if not is_full(error):
                raise StorageCorrupt(f"SQLite finds: {error}") from None
            return False
        self._write_anchor()
        self._dirty = True
        return True

    def close(self) -> None:
        """Checkpoint and let go."""
        if self.damage is None:
            self._checkpoint()
        else:
            self._keep_wal()
        self.database.connection.close()
        self._anchor.close()

    # --- rest ---

    def patience(self) -> float | None:
        """Give the seconds after which ``rest`` is due when nothing else happens; None: never."""
        if self.full:
            return RECHECK
        return IDLE if self._dirty else None

    def rest(self) -> None:
        """Do what is due when nothing is asked for."""
        try:
            if self.full:
                self._look_for_space()
            elif self._dirty:
                self._checkpoint()
        except Exception as error:  # noqa: BLE001 (the thread has to live on: others wait for it)
            self._break(error)

    # --- commits ---

    def commit(self, commits: list[Commit]) -> None:
        """Store a group, each with its own outcome; nobody is left waiting."""
        commits = [item for item in commits if item.future.set_running_or_notify_cancel()]
        try:
            self._commit(commits)
        except Exception as error:  # noqa: BLE001 (the thread has to live on: others wait for it)
            _refuse([item for item in commits if not item.future.done()], self._break(error))

    def _commit(self, commits: list[Commit]) -> None:
        if commits and self.full and self.damage is None:
            self._look_for_space()  # a busy log never rests
        if self.damage is not None:
            _refuse(commits, StorageCorrupt(self.damage))
        elif self.full:
            self._commit_in_need(commits)
        elif not self._try(commits):
            self._say_full()
            self._commit_in_need(commits)

    def _commit_in_need(self, commits: list[Commit]) -> None:
        """While the disk is full, what is left of the ballast is for transitions; output waits."""
        _refuse([item for item in commits if not item.durable], StorageFull("no space is left for output"))
        commits = [item for item in commits if item.durable]
        if not self._try(commits):
            _refuse(commits, StorageFull("no space is left"))

    def _try(self, commits: list[Commit]) -> bool:
        """Commit a group and tell those who wait. False when there is no space for it; then nothing was stored."""
        if not commits:
            return True
        durable = any(item.durable for item in commits)
        before = self.database.head
        try:
            results = write_group(self.database, commits, durable=durable)
        except Exception as error:  # noqa: BLE001 (the thread has to live on and say so)
            self.database.head = before
            if is_full(error):
                return False
            _refuse(commits, self._break(error))
            return True
        try:
            if durable:
                self._write_anchor()
        except OSError as error:
            _refuse(commits, self._break(error))
            return True
        self._told(commits, results)
        return True

    def _write_anchor(self) -> None:
        """Everything up to the head is synced: say so beside the database."""
        position = self.database.head.position(self.database.epoch, self.facts.boot)
        self._anchor.write(position)
        self.durable_head = Head(seq=position.seq, chain=position.chain)
        crashpoints.hit(Point.AFTER_ANCHOR)

    def _break(self, error: Exception) -> StorageCorrupt:
        """Write nothing any more: after a failed sync nobody knows what the disk holds."""
        self.damage = f"writing failed: {error}"
        return StorageCorrupt(self.damage)

    def _told(self, commits: list[Commit], results: list[Committed | Exception]) -> None:
        self._dirty = True
        self._tell()
        for item, result in zip(commits, results, strict=True):
            item.tell(result)
        self.on_move()
        self._limit_wal()
        if not self.full and self._ballast.is_needed():
            self._say_full()

    def _tell(self) -> None:
        head = self.database.head
        self.told_head = Head(seq=head.seq, chain=head.chain.hex())

    # --- space ---

    def _say_full(self) -> None:
        """Give back the space that was kept for this, if there was any, and write it down."""
        self.full_since = time.monotonic()
        self._guarded |= self._ballast.release()
        self._try([_notice(EventKind.STORAGE_FULL)])

    def _look_for_space(self) -> None:
        if self._ballast.hold() or not (self._guarded or self._ballast.is_needed()):
            self.full_since = None
            self._try([_notice(EventKind.STORAGE_RECOVERED)])

    def _limit_wal(self) -> None:
        try:
            size = (self._folder / "log.sqlite3-wal").stat().st_size
        except FileNotFoundError:
            return
        if size >= WAL_LIMIT:
            self._checkpoint()

    def _checkpoint(self) -> None:
        crashpoints.hit(Point.BEFORE_CHECKPOINT)
        self._dirty = False
        try:
            self.database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            crashpoints.hit(Point.AFTER_CHECKPOINT)
            self._write_anchor()
        except (sqlite3.Error, OSError) as error:
            if not is_full(error):  # without space the next one may succeed
                self._break(error)

    # --- checks ---

    def check(self, *, full: bool) -> None:
        """Verify everything, or as at a start. Raises StorageCorrupt."""
        try:
            if full:
                verify.verify_all(self.database, self._anchor.read())
            else:
                size = (self._folder / "log.sqlite3").stat().st_size
                verify.verify_start(self.database, self._anchor.read(), size)
        except (sqlite3.DatabaseError, TypeError, ValueError) as error:
            raise StorageCorrupt(f"the log cannot be read: {error}") from None

    def acknowledged(self, head: Head) -> None:
        """Compare with the head that the control plane knows. Raises StorageCorrupt."""
        found = self.database.event_chain(head.seq)
        if found is None or (head.seq and found.hex() != head.chain):
            self.damage = f"event {head.seq}, which the control plane knows, is not in this log"
            raise StorageCorrupt(self.damage)


def _refuse(commits: list[Commit], error: Exception) -> None:
    for item in commits:
        item.tell(error)


def _notice(kind: EventKind) -> Commit:
    return Commit(Change(events=(NewEvent(kind=kind),)), durable=True)
