from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.supervisor.runner.stage import Stage, stage


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Stage]:
    """A connected runner without isolation; what a session does is the same in both tiers."""
    async with stage(tmp_path, "none") as set_stage:
        yield set_stage
