"""Clients of the REST API: by session with its form token, by API token, or nobody."""

import pytest

from tasks_app.models import Task
from tests.api.clients import Api
from tests.task_rows import House, make_house, make_task
from workspaces_app.states import Role


@pytest.fixture
def house(db: None) -> House:
    return make_house()


@pytest.fixture
def task(house: House) -> Task:
    return make_task(house)


@pytest.fixture
def api(house: House) -> Api:
    """The operator of the house, in a browser's session."""
    return Api.of_user(house.user(Role.OPERATOR))


@pytest.fixture(autouse=True)
def _without_old_counters(fresh_cache: None) -> None:
    """Begin each test with throttles that have counted nothing."""
