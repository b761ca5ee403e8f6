"""The tables, and how the one connection is set up."""

import sqlite3
from pathlib import Path

FORMAT = 1
ROWS = ("graph", "nodes", "attempts", "requests", "timers")  # tables of key, rev, body, check

_ROW = 'key TEXT PRIMARY KEY, rev INTEGER NOT NULL, body BLOB NOT NULL, "check" BLOB NOT NULL'
_TABLES = [
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    *(f"CREATE TABLE IF NOT EXISTS {name} ({_ROW})" for name in ROWS),
    """CREATE TABLE IF NOT EXISTS outbox (
        key TEXT PRIMARY KEY, body BLOB NOT NULL, "check" BLOB NOT NULL, done INTEGER NOT NULL DEFAULT 0)""",
    'CREATE TABLE IF NOT EXISTS commands (key TEXT PRIMARY KEY, body BLOB NOT NULL, "check" BLOB NOT NULL)',
    """CREATE TABLE IF NOT EXISTS events (
        seq INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, node TEXT, generation INTEGER, attempt TEXT,
        data TEXT NOT NULL, chain BLOB NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS changes (
        id INTEGER PRIMARY KEY, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, body BLOB NOT NULL,
        chain BLOB NOT NULL)""",
]

_PRAGMAS = (
    "locking_mode=EXCLUSIVE",  # needs no file of shared memory: opens without a byte of space, too
    "page_size=4096",
    "journal_mode=WAL",
    "synchronous=FULL",
    "wal_autocheckpoint=1000",
    f"journal_size_limit={64 * 1024 * 1024}",
    "cache_size=-4096",
    "temp_store=MEMORY",
    "trusted_schema=OFF",
    "cell_size_check=ON",
)


def connect(path: Path) -> sqlite3.Connection:
    """Open the database for its one thread. Transactions are begun by hand."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=0, cached_statements=64)
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()  # its lock would outlive it
        raise
    return connection


def create(connection: sqlite3.Connection) -> None:
    """Make the tables that are missing."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute("COMMIT")
