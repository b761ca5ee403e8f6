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


def connect(path: Path) -> sqlite3.Connection:
    """Open the database for its one thread. Transactions are begun by hand."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=0, cached_statements=64)
    connection.execute("PRAGMA page_size=4096")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA wal_autocheckpoint=1000")
    connection.execute(f"PRAGMA journal_size_limit={64 * 1024 * 1024}")
    connection.execute("PRAGMA cache_size=-4096")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    return connection


def create(connection: sqlite3.Connection) -> None:
    """Make the tables that are missing."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute("COMMIT")
