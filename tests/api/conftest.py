"""Clients of the REST API: by session with its form token, by API token, or nobody."""

import pytest

from tests.api.clients import Api
from tests.task_fixtures import _without_old_counters, house, task  # noqa: F401
from tests.task_rows import House
from workspaces_app.states import Role


@pytest.fixture
def api(house: House) -> Api:  # noqa: F811 - the fixture of that name
    """The operator of the house, in a browser's session."""
    return Api.of_user(house.user(Role.OPERATOR))
