"""A repository to bring in, and where it goes."""

from pathlib import Path

import pytest

from tests.sandbox_folder import make_repository


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


@pytest.fixture
def head(source: Path) -> str:
    return make_repository(source)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "sandbox").mkdir()
    return tmp_path / "sandbox" / "repo"
