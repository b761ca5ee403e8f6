"""After a crash the next runner ends what is left, and nothing that only looks like it."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.runner import leftovers, shim
from tests.supervisor.runner.stage import (
    ATTEMPT,
    GIVE_UP,
    Stage,
    runner_argv,
    running,
    shell,
    start_runner,
    token,
    until,
)


@pytest.fixture
def bystander():
    """A process that has nothing to do with any attempt."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def identity_of(pid: int) -> Identity:
    seen = shim.stat(pid)
    assert seen is not None
    return Identity(pid=pid, start_time=seen[1], boot_id=shim.boot_id())


@pytest.mark.parametrize(
    "other",
    [{"start_time": 1}, {"boot_id": "another-boot/pid:[1]"}, {"boot_id": ""}],
    ids=["reused", "boot", "unknown"],
)
def test_a_pid_alone_identifies_nothing(bystander, tmp_path: Path, other: dict[str, Any]):
    same = identity_of(bystander.pid)
    fields: dict[str, Any] = {"pid": same.pid, "start_time": same.start_time, "boot_id": same.boot_id} | other
    leftovers.end([Identity(**fields)], tmp_path, frozenset())
    assert bystander.poll() is None


def test_a_tree_found_by_identity_is_ended_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leftovers, "PATIENCE", 0.1)
    mark = token()
    process = subprocess.Popen(["sh", "-c", f"trap '' TERM; sleep {mark} & sleep {mark}; true"])
    asyncio.run(until(lambda: len(running(f"sleep\0{mark}")) == 2))
    identity = identity_of(process.pid)
    process_waits = asyncio.run(_end_while_reaping(process, identity, tmp_path))
    assert process_waits
    assert running(f"sleep\0{mark}") == []


async def _end_while_reaping(process: subprocess.Popen[bytes], identity: Identity, work: Path) -> bool:
    reaping = asyncio.create_task(asyncio.to_thread(process.wait, GIVE_UP))
    await asyncio.to_thread(leftovers.end, [identity], work, frozenset())
    await reaping
    return True


def test_what_carries_the_mark_of_this_work_folder_is_ended(tmp_path: Path, bystander):
    env = {"PATH": os.defpath, "CAISSON_WORK": str(tmp_path)}
    marked = subprocess.Popen(["sleep", "600"], env=env)
    other = subprocess.Popen(["sleep", "600"], env=env | {"CAISSON_WORK": f"{tmp_path}2"})
    asyncio.run(_reaped(marked, tmp_path))
    assert marked.returncode == -signal.SIGKILL
    assert bystander.poll() is None
    assert other.poll() is None
    other.kill()
    other.wait()


async def _reaped(marked: subprocess.Popen[bytes], work: Path) -> None:
    reaping = asyncio.create_task(asyncio.to_thread(marked.wait, GIVE_UP))
    await asyncio.to_thread(leftovers.end, [], work, frozenset())
    await reaping


async def test_leftovers_of_running_attempts_are_not_touched(bare_stage: Stage):
    mark = token()
    await bare_stage.link.prepare(ATTEMPT, bare_stage.base)
    identity = await bare_stage.link.spawn(ATTEMPT, shell(f"sleep {mark}"))
    await bare_stage.link.go(ATTEMPT)
    await until(lambda: running(f"sleep\0{mark}"))
    await bare_stage.link.leftovers((identity,))
    assert running(f"sleep\0{mark}")
    await bare_stage.link.stop(ATTEMPT, kill=True)


async def test_a_killed_runners_trees_are_gone_when_its_successor_says_so(bare_stage: Stage):
    mark = token()
    await bare_stage.link.prepare(ATTEMPT, bare_stage.base)
    identity = await bare_stage.link.spawn(ATTEMPT, shell(f"setsid sleep {mark} & sleep {mark}"))
    await bare_stage.link.go(ATTEMPT)
    await until(lambda: len(running(f"sleep\0{mark}")) == 2)
    bare_stage.process.kill()
    bare_stage.process.wait()
    argv = runner_argv(bare_stage.folder, bare_stage.state, bare_stage.isolation)
    successor = start_runner(argv, bare_stage.nonce)
    try:
        link = await asyncio.wait_for(bare_stage.gate.accept(), GIVE_UP)
        await link.leftovers((identity,))
        assert running(f"sleep\0{mark}") == []
    finally:
        successor.terminate()
        await asyncio.to_thread(successor.wait, GIVE_UP)


async def test_leftovers_that_never_were_are_no_trouble(on_stage: Stage):
    ghost = Identity(pid=2**22 - 1, start_time=5, boot_id=shim.boot_id())
    await on_stage.link.leftovers((ghost,))
