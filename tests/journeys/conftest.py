from pathlib import Path

import pytest

from tests.ordered import in_definition_order


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_definition_order(items, Path(__file__).parent)
