"""Fixtures for tests that need one house and one task of it; a ``conftest`` imports what it wants."""

import pytest

from tasks_app.models import Task
from tests.task_rows import House, make_house, make_task
from tests.tasks.internal.sandbox import Sandbox


@pytest.fixture
def house(db: None) -> House:
    return make_house()


@pytest.fixture
def task(house: House) -> Task:
    return make_task(house)


@pytest.fixture
def sandbox(task: Task) -> Sandbox:
    """The client of the task's sandbox."""
    return Sandbox(task)


@pytest.fixture(autouse=True)
def _without_old_counters(fresh_cache: None) -> None:
    """Begin each test with throttles that have counted nothing."""
