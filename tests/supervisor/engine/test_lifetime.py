"""How a supervisor ends, and what its exit code says."""

import asyncio
import subprocess
import sys
from pathlib import Path

from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.outbox import Outbox
from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.facts import Dispatched, GateOpened, Restarted
from sandbox_supervisor.graph.rows import Intent
from sandbox_supervisor.log import Log
from sandbox_supervisor.runner.link import RunnerLost
from tests.supervisor.engine.scenario import ROOT, command, specification


def test_it_ends_when_its_folder_has_vanished_and_leaves_nothing_behind(sandbox, tmp_path):
    box = sandbox([command("busy", "while :; do echo busy; sleep 0.01; done")])
    process = box.start()
    box.wait_for("attempt busy.1.1 running")
    box.folder.rename(tmp_path / "elsewhere")
    assert process.wait(90) == 66
    assert box.wait_empty() == []


def test_it_ends_in_order_when_it_is_told_to(sandbox):
    box = sandbox([command("slow", "sleep 600")])
    box.start("--stay")
    box.wait_for("attempt slow.1.1 running")
    assert box.stop() == 1
    assert box.wait_empty() == []
    assert box.verify().startswith("sound")


def test_a_log_of_which_nothing_can_be_read_is_named(sandbox):
    box = sandbox([command("one", "true")])
    assert box.run().code == 0
    (box.folder / "log" / "log.sqlite3").write_bytes(b"no database" * 1000)
    ran = box.run()
    assert ran.code == 74
    assert "the log cannot even be read" in ran.errors
    assert "Traceback" not in ran.errors


def test_checking_a_folder_without_a_log_makes_none(tmp_path):
    folder = tmp_path / "nothing"
    argv = [sys.executable, "-m", "sandbox_supervisor", "supervise", "--verify", "--folder", str(folder)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stderr) == (66, f"there is no log in {folder}\n")
    assert not folder.exists()


async def test_an_effect_that_breaks_while_the_runner_is_away_ends_nothing_else(tmp_path: Path):
    spec = specification(tmp_path, "1" * 40, [command("one", "true"), command("two", "true")])
    log = Log.open(tmp_path / "log")
    tried: list[str] = []
    told: list[str] = []

    async def breaks(intent: Intent) -> None:
        tried.append(intent.id)
        raise ExceptionGroup("of its tasks", [ValueError("broken")])

    async def has_no_runner(intent: Intent, error: Exception) -> None:
        told.append(repr(error))
        raise RunnerLost

    try:
        engine = Engine(spec, tmp_path, log, log.load())
        await engine.begin(kernel.initial(spec.flow), Restarted(boot=1))
        await engine.take(GateOpened(round=1))
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            outbox = Outbox(engine, group, {EffectKind.PREPARE: breaks}, has_no_runner)
            await engine.take(Dispatched(node="one"))
            await outbox.finished("prepare:one.1.1")
            await engine.take(Dispatched(node="two"))
            await outbox.finished("prepare:two.1.1")
        assert tried == ["prepare:one.1.1", "prepare:two.1.1"]
        assert told == ["ValueError('broken')"] * 2
    finally:
        await log.close()
