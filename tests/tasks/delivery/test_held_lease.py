"""A lease is kept beside a long transfer, also over a database that stumbles meanwhile."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
from django.db import connection

from tasks_app.models import Lease
from tasks_app.services import clock
from tasks_app.services.delivery import held_lease
from tests.tasks.lifecycle.house import START

PATIENCE = 60.0  # seconds


class Tries:
    """A clock that stands still and counts how often the keeper asks it: once for each renewal that it tries."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def __call__(self) -> datetime:
        if threading.current_thread() is not threading.main_thread():
            with self._changed:
                self._count += 1
                self._changed.notify_all()
        return START

    def wait_for_more(self) -> None:
        """Wait until a renewal that begins after this call has ended."""
        with self._changed:
            wanted = self._count + 3  # one may be under way, the next is whole when one more has begun
            assert self._changed.wait_for(lambda: self._count >= wanted, timeout=PATIENCE)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tries]:
    monkeypatch.setattr(held_lease, "RENEW_EVERY", 0.02)
    with clock.reading(made := Tries()):
        yield made


@contextmanager
def without_table() -> Iterator[None]:
    """Let every look at the leases be an error of the database."""
    name = Lease._meta.db_table
    rename: Callable[[str, str], str] = "ALTER TABLE {} RENAME TO {}".format
    with connection.cursor() as cursor:
        cursor.execute(rename(name, "elsewhere"))
        try:
            yield
        finally:
            cursor.execute(rename("elsewhere", name))


@pytest.mark.django_db(transaction=True)
def test_a_lease_is_renewed_again_after_a_database_error(tries: Tries):
    with held_lease.held("transfer") as lease:
        assert lease is not None
        with without_table():
            tries.wait_for_more()
        Lease.objects.update(held_until=START + held_lease.TTL / 2)
        tries.wait_for_more()
        assert Lease.objects.get(name="transfer").held_until == START + held_lease.TTL


@pytest.mark.django_db(transaction=True)
def test_a_lease_that_went_to_another_is_not_renewed_and_not_given_back(tries: Tries):
    with held_lease.held("transfer") as lease:
        assert lease is not None
        tries.wait_for_more()
        Lease.objects.update(token="theirs")
        with pytest.raises(held_lease.LeaseLost):
            lease.confirm()
    assert Lease.objects.get(name="transfer").token == "theirs"
