"""A connected runner in each tier, and repositories to work on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_supervisor.isolation import IsolationMissing
from tests.supervisor.runner.stage import Stage, chosen_tier, make_repo, stage


@pytest.fixture(params=["none", "bubblewrap"])
def tier(request: pytest.FixtureRequest) -> str:
    try:
        chosen_tier(request.param)
    except IsolationMissing as missing:
        pytest.skip(str(missing))
    return str(request.param)


@pytest.fixture
async def on_stage(tmp_path: Path, tier: str) -> AsyncIterator[Stage]:
    """A connected runner, once in each tier."""
    async with stage(tmp_path, tier) as set_stage:
        yield set_stage


@pytest.fixture
async def bare_stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A connected runner without isolation: for what does not depend on the tier."""
    async with stage(tmp_path, "none") as set_stage:
        yield set_stage


@pytest.fixture
def repo(tmp_path: Path) -> tuple[Path, str]:
    """A bare repository and its one commit."""
    base = make_repo(tmp_path, {"readme.md": "hello\n", "src/app.py": "print('hi')\n", ".gitignore": "*.log\n"})
    return tmp_path / "repo", base
