"""A connected runner for tests of sessions."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_supervisor.isolation import IsolationMissing
from tests.supervisor.runner.stage import PATIENT, Stage, chosen_tier, stage


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Stage]:
    """A connected runner without isolation; what a session does is the same in both tiers."""
    async with stage(tmp_path, "none") as set_stage:
        yield set_stage


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncIterator[Stage]:
    """A runner that waits on the first rung for as long as a busy machine may need."""
    async with stage(tmp_path, "none", None, *PATIENT) as set_stage:
        yield set_stage


@pytest.fixture(params=["none", "bubblewrap"])
async def on_both(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """A connected runner, once in each tier."""
    try:
        chosen_tier(request.param)
    except IsolationMissing as missing:
        pytest.skip(str(missing))
    async with stage(tmp_path, request.param) as set_stage:
        yield set_stage
