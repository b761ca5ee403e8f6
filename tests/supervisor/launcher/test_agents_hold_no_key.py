"""The whole way down, from launcher to the tools of an agent: below a shim nothing holds a key of anybody else's."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_providers.conformance import local_material as material
from sandbox_providers.conformance.local import LocalHarness
from sandbox_providers.contract import CapacityGap, State
from sandbox_supervisor.processes import descendants
from sandbox_supervisor.protocol import codec, flow
from sandbox_supervisor.protocol.spec import ControlPlane, DriverEntry, DriverProtocol, TaskSpecification
from tests.fixtures.scripted_control import ScriptedControl
from tests.sandbox_folder import until
from tests.supervisor.launcher.conftest import Sandbox

pytestmark = pytest.mark.slow  # builds the image

SCAN = """
for process in /proc/[0-9]*; do
  grep -qs "CAISSON_SANDBOX=$CAISSON_SANDBOX" $process/environ && cat $process/environ $process/cmdline
done > seen 2> /dev/null
ls -l /proc/self/fd > fds; sleep {mark}
"""
NONCE = b"CAISSON_RUNNER_NONCE"


class Rehearsal:
    """A sandbox in which an agent has looked around and now sleeps."""

    def __init__(self, harness: LocalHarness, control: Path) -> None:
        self._mark = f"9{secrets.randbelow(10**8):08d}"
        playbook: list[dict[str, Any]] = [
            {"say": "Looking around."},
            {"run": {"command": SCAN.format(mark=self._mark)}},
        ]
        look = flow.Node(
            key="look", kind=flow.NodeKind.AGENT, agent=flow.Agent(driver="scripted", prompt="Look.", playbook=playbook)
        )
        empty = codec.decode(harness.specification(), TaskSpecification)
        specification = replace(
            empty,
            flow=flow.Flow(name="look", nodes=(look,)),
            control=ControlPlane(url="http://control", socket=str(control), heartbeat_interval=0.1),
            drivers={"scripted": DriverEntry(name="scripted", protocol=DriverProtocol.SCRIPTED)},
        )
        self.sandbox = Sandbox(harness, specification=codec.canonical(specification))
        self.canaries = [secret.reveal().encode() for keys in harness.secrets().values() for secret in keys.values()]

    def begin(self) -> None:
        self.sandbox.create().wait(State.READY)
        asleep = f"sleep\0{self._mark}".encode()
        until(lambda: any(asleep in shown(pid, "cmdline") for pid in self.tree()), what="the agent's sleep", seconds=60)

    def tree(self) -> list[int]:
        """Give the pids of the agent's tree: its shim and everything below."""
        below = [process.pid for process in descendants(self.sandbox.runner.pid)]
        shims = [pid for pid in below if b"runner/shim.py" in shown(pid, "cmdline")]
        return [*shims, *(process.pid for shim in shims for process in descendants(shim))]

    def seen(self, name: str) -> bytes:
        return (self.sandbox.place / "work" / "look.1.1" / "tree" / name).read_bytes()


def shown(pid: int, part: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{part}").read_bytes()
    except OSError:  # it has just ended
        return b""


def held(pid: int) -> bytes:
    """Give everything that a process has written into its memory."""
    found = []
    with suppress(OSError), Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in shown(pid, "maps").decode().splitlines():
            where, rights, *_ = line.split()
            if rights.startswith("rw"):
                start, end = (int(part, 16) for part in where.split("-"))
                with suppress(OSError, OverflowError):
                    memory.seek(start)
                    found.append(memory.read(end - start))
    return b"".join(found)


def sockets(pid: int) -> set[str]:
    with suppress(OSError):
        links = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
        return {link for link in links if link.startswith(("socket:", "/memfd:"))}
    return set()


@pytest.fixture(params=["none", "bubblewrap"])
async def looking(request: pytest.FixtureRequest) -> AsyncIterator[Rehearsal]:
    harness = LocalHarness(image=material.shared_image, isolation=request.param)
    rehearsal = Rehearsal(harness, harness.folder / "control.sock")
    try:
        async with ScriptedControl().listening(harness.folder / "control.sock"):
            try:
                await asyncio.to_thread(rehearsal.begin)
            except CapacityGap as gap:
                pytest.skip(gap.message)
            yield rehearsal
    finally:
        await asyncio.to_thread(harness.close)


async def test_nothing_in_an_agents_tree_holds_or_sees_a_key(looking: Rehearsal):
    tree, supervisor = looking.tree(), looking.sandbox.supervisor.pid
    names = b"\0".join(shown(pid, "cmdline") for pid in tree)
    assert all(part in names for part in (b"drivers.host", b"drivers.scripted", b"sleep"))
    whole = [*looking.canaries, NONCE]
    for pid in tree:
        open_to_see = shown(pid, "environ") + shown(pid, "cmdline") + held(pid)
        assert not [canary for canary in whole if canary in open_to_see], shown(pid, "cmdline")
        others = sockets(supervisor) | sockets(looking.sandbox.record.launcher.pid)
        assert not sockets(pid) & others, shown(pid, "cmdline")
    assert b"CAISSON_ATTEMPT=look.1.1" in looking.seen("seen")
    assert not [canary for canary in whole if canary in looking.seen("seen")]
    assert b"memfd" not in looking.seen("fds")
    if held(supervisor):  # another user's memory cannot be looked at
        assert all(secret in held(supervisor) for secret in looking.canaries[:2]), "the look finds what is there"
