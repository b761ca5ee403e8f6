"""A tree ends whole, whatever its processes do to get away."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from sandbox_supervisor.runner import shim
from tests.supervisor.runner.stage import (
    ATTEMPT,
    GIVE_UP,
    PATIENT,
    Stage,
    running,
    scripted,
    shell,
    stage,
    token,
    until,
)

ESCAPES = {
    "background": "sleep {0} &",
    "own session": "setsid sleep {0} &",
    "double fork": "(setsid sh -c 'sleep {0} & exit 0' &) ; sleep 0.1",
    "cleared environment": "(env -i setsid sh -c 'sleep {0} &' &) ; sleep 0.1",
    "ignored signals": "sh -c 'trap \"\" TERM HUP INT; sleep {0}' & sleep 0.1",
    "stopped": "sleep {0} & sleep 0.1; kill -STOP $!",
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
async def test_nothing_outlives_a_command_that_has_ended(on_stage: Stage, escape: str):
    mark = token()
    ran = await on_stage.sh(escape.format(mark))
    assert ran.exit["outcome"] == "ok"
    assert running(mark) == []


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
async def test_a_killed_attempt_takes_all_its_processes_along(on_stage: Stage, escape: str):
    mark = token()
    await on_stage.begin(shell(f"{escape.format(mark)}\nsleep {mark}"))
    await until(lambda: len(running(f"sleep\0{mark}")) >= 2)
    await on_stage.link.stop(ATTEMPT, kill=True)
    assert running(mark) == []
    assert (await on_stage.rest()).exit["outcome"] == "cancelled"


async def test_a_process_that_keeps_forking_is_caught(on_stage: Stage):
    mark = token()
    bomb = f"while :; do setsid sleep {mark} & sleep 0.002; done"
    await on_stage.begin(shell(bomb))
    await until(lambda: len(running(mark)) > 20)
    await on_stage.link.stop(ATTEMPT, kill=True)
    assert running(mark) == []


async def test_nothing_outlives_an_agent_that_forked_a_daemon(on_stage: Stage):
    seconds = 3000 + int(token()) / 10**9
    daemon = f"sleep\0{seconds}"
    await on_stage.begin(scripted({"fork_daemon": {"seconds": seconds}}, {"permission": {"title": "?"}}, {"say": "x"}))
    asked = await on_stage.first(lambda event: event.kind == "ask")
    await until(lambda: running(daemon))
    await on_stage.link.reply(ATTEMPT, asked.data["request_id"], {"option": "Allow"})
    assert (await on_stage.rest()).exit["outcome"] == "ok"
    assert running(daemon) == []


async def test_an_attempt_that_was_never_told_to_go_runs_nothing(on_stage: Stage):
    mark = token()
    await on_stage.link.prepare(ATTEMPT, on_stage.base)
    await on_stage.link.spawn(ATTEMPT, shell(f"touch here; sleep {mark}"))
    await on_stage.link.stop(ATTEMPT, kill=False)
    assert running(mark) == []
    assert not (on_stage.attempt().tree / "here").exists()
    assert (await on_stage.rest()).exit["outcome"] == "cancelled"


async def test_an_unrecorded_attempt_never_runs_when_the_supervisor_goes(on_stage: Stage):
    mark = token()
    await on_stage.link.prepare(ATTEMPT, on_stage.base)
    await on_stage.link.spawn(ATTEMPT, shell(f"touch here; sleep {mark}"))
    await on_stage.link.close()
    await on_stage.gate.accept()  # the runner comes back only when its trees are empty
    assert not (on_stage.attempt().tree / "here").exists()
    assert running("shim.py") == [] or all(not _below(on_stage.process.pid, pid) for pid in running("shim.py"))


def _below(root: int, pid: int) -> bool:
    return pid in {found for found, _, _ in shim.descendants(root)}


async def test_all_trees_die_when_the_supervisor_goes(on_stage: Stage):
    mark = token()
    for number in (1, 2, 3):
        await on_stage.begin(shell(f"setsid sleep {mark} & sleep {mark}"), f"node.1.{number}")
    await until(lambda: len(running(f"sleep\0{mark}")) == 6)
    await on_stage.link.close()
    await on_stage.gate.accept()
    assert running(mark) == []


async def test_all_trees_die_when_the_runner_is_killed(on_stage: Stage):
    mark = token()
    await on_stage.begin(shell(f"(env -i setsid sh -c 'sleep {mark} &' &); sleep {mark}"))
    await until(lambda: len(running(f"sleep\0{mark}")) == 2)
    os.kill(on_stage.process.pid, signal.SIGKILL)
    await until(lambda: running(mark) == [])


async def test_all_trees_die_when_the_runner_is_told_to_end(on_stage: Stage):
    mark = token()
    await on_stage.begin(shell(f"setsid sleep {mark} & sleep {mark}"))
    await until(lambda: len(running(f"sleep\0{mark}")) == 2)
    on_stage.process.terminate()
    await until(lambda: running(mark) == [])
    await until(lambda: on_stage.process.poll() is not None)


async def test_orphans_of_a_killed_shim_are_found_and_ended(bare_stage: Stage):
    mark = token()
    await bare_stage.link.prepare(ATTEMPT, bare_stage.base)
    identity = await bare_stage.link.spawn(ATTEMPT, shell(f"setsid sleep {mark} & sleep {mark}"))
    await bare_stage.link.go(ATTEMPT)
    await until(lambda: len(running(f"sleep\0{mark}")) == 2)
    os.kill(identity.pid, signal.SIGKILL)
    ran = await bare_stage.rest()
    assert running(mark) == []
    assert (ran.exit["failure_class"], ran.exit["code"]) == ("infra", "tree_lost")


async def test_a_tree_that_has_stopped_its_shim_is_ended_all_the_same(bare_stage: Stage):
    mark = token()
    await bare_stage.begin(shell(f"setsid sleep {mark} & kill -STOP $PPID; sleep {mark}"))
    await until(lambda: len(running(f"sleep\0{mark}")) == 2)
    async with asyncio.timeout(GIVE_UP):
        await bare_stage.link.stop(ATTEMPT, kill=True)
    assert running(mark) == []
    assert (await bare_stage.rest()).exit["outcome"] == "cancelled"


async def test_the_end_of_one_tree_leaves_another_alone(on_stage: Stage):
    mark = token()
    await on_stage.begin(shell(f"echo up; sleep {mark}"), "other.1.1")
    await until(lambda: running(f"sleep\0{mark}"))
    await on_stage.sh("setsid sleep 77 & exit 0")
    assert running(f"sleep\0{mark}")
    await on_stage.link.stop("other.1.1", kill=True)


async def test_a_tree_ends_gently_on_sigterm(tmp_path: Path, tier: str):
    async with stage(tmp_path, tier, None, *PATIENT) as patient:
        await patient.begin(shell("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
        await patient.first(lambda event: event.payload.startswith(b"up"))
        async with asyncio.timeout(GIVE_UP):
            await patient.link.stop(ATTEMPT, kill=False)
        ran = await patient.rest()
    assert b"bye" in ran.output()
    assert ran.exit["outcome"] == "cancelled"


async def test_a_tree_that_ignores_sigterm_is_killed_in_the_end(on_stage: Stage):
    mark = token()
    await on_stage.begin(shell(f"trap '' TERM; echo up; sleep {mark}; sleep {mark}"))
    await on_stage.first(lambda event: event.payload.startswith(b"up"))
    await on_stage.link.stop(ATTEMPT, kill=False)
    assert running(mark) == []


async def test_an_agent_that_ignores_cancel_end_of_input_and_sigterm_is_killed_in_the_end(on_stage: Stage):
    mark = token()
    await on_stage.begin(scripted({"ignore_cancel": True}, {"say": "up"}, {"run": f"sleep {mark}"}, {"sleep": 600}))
    await until(lambda: running(f"sleep\0{mark}"))
    await on_stage.link.stop(ATTEMPT, kill=False)
    assert running(mark) == []
    assert (await on_stage.rest()).exit["outcome"] == "cancelled"


async def test_a_second_stop_with_kill_hastens_the_first(tmp_path: Path, tier: str):
    async with stage(tmp_path, tier, None, *PATIENT) as set_stage:
        await set_stage.begin(shell("trap '' TERM; echo up; while :; do sleep 1; done"))
        await set_stage.first(lambda event: event.payload.startswith(b"up"))
        gentle = asyncio.create_task(set_stage.link.stop(ATTEMPT, kill=False))
        await asyncio.sleep(0)
        async with asyncio.timeout(GIVE_UP):
            await set_stage.link.stop(ATTEMPT, kill=True)
            await gentle


async def test_the_interpreter_of_the_shim_sees_neither_site_packages_nor_environment(bare_stage: Stage):
    await bare_stage.link.prepare(ATTEMPT, bare_stage.base)
    identity = await bare_stage.link.spawn(ATTEMPT, shell("true"))
    arguments = Path(f"/proc/{identity.pid}/cmdline").read_bytes().split(b"\0")
    assert arguments[:4] == [sys.executable.encode(), b"-I", b"-S", b"-B"]
    await bare_stage.link.stop(ATTEMPT, kill=True)


async def test_a_supervisor_that_goes_in_the_middle_of_a_spawn_leaves_nothing_and_no_hang(on_stage: Stage):
    await on_stage.link.prepare(ATTEMPT, on_stage.base)
    await on_stage.link.prepare("node.1.2", on_stage.base)
    for pause in (0.0, 0.002, 0.01, 0.02):
        mark = token()
        spawning = asyncio.create_task(on_stage.link.spawn(ATTEMPT, shell(f"sleep {mark}")))
        other = asyncio.create_task(on_stage.link.spawn("node.1.2", shell(f"sleep {mark}")))
        await asyncio.wait({spawning, other}, timeout=pause)
        await on_stage.link.close()
        await asyncio.gather(spawning, other, return_exceptions=True)
        on_stage.link = await asyncio.wait_for(on_stage.gate.accept(), GIVE_UP)
        assert running(mark) == []


async def test_a_runner_told_to_end_while_it_empties_its_trees_still_empties_them(on_stage: Stage):
    mark = token()
    for number in range(1, 6):
        await on_stage.begin(shell(f"setsid sleep {mark} & sleep {mark}"), f"node.1.{number}")
    await until(lambda: len(running(f"sleep\0{mark}")) == 10)
    await on_stage.link.close()
    on_stage.process.terminate()
    await until(lambda: running(mark) == [] and on_stage.process.poll() is not None)
