"""A control plane on a socket, and the client under test with short pauses."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_supervisor import control as control_module
from sandbox_supervisor.control import Control
from sandbox_supervisor.protocol.spec import ControlPlane
from tests.fixtures.scripted_control import ScriptedControl

TASK_TOKEN = "cst_task.key.mac"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(control_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(control_module, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(control_module, "SHORTEST_INTERVAL", 0.01)


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


@pytest.fixture
async def plane() -> ScriptedControl:
    return ScriptedControl()


@pytest.fixture
async def client(socket_path: Path) -> AsyncIterator[Control]:
    endpoint = ControlPlane(url="http://control", socket=str(socket_path), heartbeat_interval=0.05)
    made = Control(endpoint, token=TASK_TOKEN)
    yield made
    await made.close()
