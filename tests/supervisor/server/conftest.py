"""A scripted supervisor behind the real server, and an HTTP client that holds its bearer."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.fixtures.scripted_supervisor import TOKEN, ScriptedSupervisor, Served, served
from tests.fixtures.stream_client import PATIENCE, trusting


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    async with served(ScriptedSupervisor()) as running:
        yield running


@pytest.fixture
async def stranger(server: Served) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a bearer."""
    async with httpx.AsyncClient(verify=trusting(), base_url=server.https, trust_env=False, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
async def http(server: Served) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        verify=trusting(), base_url=server.https, headers=headers, trust_env=False, timeout=PATIENCE
    ) as client:
        yield client
