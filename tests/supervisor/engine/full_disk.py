"""Scenes on a disk that fills up: ``python -m tests.supervisor.engine.full_disk SCENE PLACE``; PLACE is a small disk.

Each prints what it saw as one JSON object. The specification's repository and the sandbox lie on that disk.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sandbox_supervisor import control as control_module
from sandbox_supervisor.engine import facade, reports
from sandbox_supervisor.engine import running as running_module
from sandbox_supervisor.engine.running import Running
from sandbox_supervisor.graph.rows import State
from sandbox_supervisor.materialise.repository import bring_in
from sandbox_supervisor.protocol.flow import Merge, Node, NodeKind
from sandbox_supervisor.protocol.messages import CommandVerb, Desired
from sandbox_supervisor.protocol.spec import ControlPlane
from sandbox_supervisor.protocol.states import GRAPH_ENDED, AttemptState, GraphState
from tests.fixtures.scripted_control import RUNNING, ScriptedControl
from tests.supervisor.engine.live import live, send, until
from tests.supervisor.engine.scenario import Sandbox, command, deliver, keeping, repository, specification

PIECE = 65536
LINES = 60_000  # of 16 bytes each: more than every buffer between a process and the log


class Disk:
    def __init__(self, place: Path) -> None:
        self.place = place
        self._filler = place / "filler"

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * PIECE)

    def clear(self) -> None:
        self._filler.unlink()

    def keep_full(self) -> "asyncio.Task[None]":
        """Take whatever becomes free, as a process that writes without end would."""
        return asyncio.create_task(self._hog())

    async def _hog(self) -> None:
        while True:
            self.fill()
            await asyncio.sleep(0.005)


def make(place: Path, nodes: list[Node]) -> Sandbox:
    source, commit = repository(place / "source")
    endpoint = ControlPlane(url="http://control", socket=str(place / "control.sock"), heartbeat_interval=0.05)
    return Sandbox(folder=place / "sandbox", spec=specification(source, commit, nodes, control=endpoint))


def runs(*attempts: str) -> Callable[[State], bool]:
    return lambda now: all(one in now.attempts and now.attempts[one].state is AttemptState.RUNNING for one in attempts)


def ended(state: State) -> bool:
    return state.graph.state in GRAPH_ENDED


def talker(place: Path) -> Node:
    """Give a node that is silent until the file ``talk`` appears, then says a lot."""
    wait = f"while ! test -e {place}/talk; do sleep 0.05; done"
    return command("talk", f"{wait}; seq -f 'line %010.0f' 1 {LINES}")


def sleeper(place: Path, key: str, file: str) -> Node:
    return keeping(key, f"while ! test -e {place}/{file}; do sleep 0.05; done; echo 2 > value.txt")


async def full(running: Running) -> None:
    """Wait until the log has met with the full disk; pausing makes it write."""
    async with asyncio.timeout(60):
        while not running.engine.log.full:
            await send(running, CommandVerb.PAUSE)
            await send(running, CommandVerb.RESUME)


def kinds(events: list[Any]) -> list[str]:
    return [str(event.kind) for event in events]


async def everything(running: Running) -> list[Any]:
    found: list[Any] = []
    while part := await running.facade.events(found[-1].seq if found else 0, 500):
        found += part
    return found


async def waits_and_goes_on(disk: Disk) -> dict[str, Any]:
    """While there is no space nothing starts and output waits; with space everything is as if nothing had happened."""
    place, plane = disk.place, ScriptedControl()
    box = make(place, [talker(place), sleeper(place, "first", "go"), command("second", "cat value.txt", "first")])
    async with plane.listening(place / "control.sock"), live(box, gate=False) as running:
        await until(running, runs("talk.1.1", "first.1.1"))
        disk.fill()
        await full(running)
        os.mkfifo(place / "talk")  # a marker that needs no space
        os.mkfifo(place / "go")
        await plane.until(lambda: plane.beats[-1].readiness["storage"] == "storage_full")
        seen = len(plane.beats)
        await plane.until(lambda: len(plane.beats) > seen + 20)
        state = running.engine.state
        facts: dict[str, Any] = {
            "started": sorted(state.attempts),
            "talk": state.nodes["talk"].state,
            "failure": plane.beats[-1].failure,
            "ready": plane.beats[-1].ready,
        }
        disk.clear()
        done = await until(running, ended)
        part = await running.facade.attempt_log("talk.1.1", "stdout", 0, 10)
        told = kinds(await everything(running))
        return facts | {
            "graph": done.graph.state,
            "attempts": sorted(done.attempts),
            "output": (part.size, part.dropped),
            "told": [told.count("storage.full"), told.count("storage.recovered")],
        }


async def fails_after_the_grace(disk: Disk) -> dict[str, Any]:
    """Past the grace the control plane hears ``storage_failed``; its stop is obeyed, and with space a rerun works."""
    place, plane = disk.place, ScriptedControl()
    box = make(place, [talker(place), command("next", "true", "talk")])
    async with plane.listening(place / "control.sock"), live(box, gate=False, grace=0.5) as running:
        await until(running, runs("talk.1.1"))
        disk.fill()
        os.mkfifo(place / "talk")
        await full(running)
        await plane.until(lambda: plane.beats[-1].failure is not None)
        beat = plane.beats[-1]
        facts: dict[str, Any] = {"code": getattr(beat.failure, "code", ""), "graph": beat.graph, "ready": beat.ready}
        plane.answer = replace(RUNNING, status="failed", desired=Desired.STOP)
        stopped = await until(running, ended)
        await plane.until(lambda: plane.beats[-1].graph is GraphState.CANCELLED)
        facts |= {
            "stopped": [stopped.graph.state, stopped.attempts["talk.1.1"].state],
            "after": plane.beats[-1].failure,
            "left": await asyncio.to_thread(box.wait_for_none, "seq"),
        }
        disk.clear()
        plane.answer = replace(RUNNING, round=2)
        async with asyncio.timeout(30):
            await running.engine.log.wait_space(30)
        outcome = await send(running, CommandVerb.RERUN, nodes=("talk", "next"))
        again = await until(running, lambda now: ended(now) and now.graph.round == 2)
        return facts | {"rerun": [outcome.code, again.graph.state]}


async def stops_even_without_a_byte(disk: Disk) -> dict[str, Any]:
    """Something eats the ballast as well: heartbeats go on, trees are ended, and the end is written down later."""
    place, plane = disk.place, ScriptedControl()
    box = make(place, [command("slow", "sleep 600")])
    async with plane.listening(place / "control.sock"), live(box, gate=False, grace=0.5) as running:
        await until(running, runs("slow.1.1"))
        hog = disk.keep_full()
        refused = await exhausted(running)
        await plane.until(lambda: plane.beats[-1].failure is not None)
        plane.answer = replace(RUNNING, status="failed", desired=Desired.STOP)
        left = await asyncio.to_thread(box.wait_for_none, "sleep 600")
        seen = len(plane.beats)
        await plane.until(lambda: len(plane.beats) > seen + 5)
        facts: dict[str, Any] = {"left": left, "meanwhile": running.engine.state.graph.state}
        facts["code"] = getattr(plane.beats[-1].failure, "code", "")
        hog.cancel()
        disk.clear()
        state = await until(running, ended)
        return facts | {"refused": refused, "end": [state.graph.state, state.attempts["slow.1.1"].state]}


async def exhausted(running: Running) -> str:
    """Wait until not even a transition can be stored; give the reason for which a command is refused then."""
    async with asyncio.timeout(60):
        while True:
            for verb in (CommandVerb.PAUSE, CommandVerb.RESUME):
                outcome = await send(running, verb)
                if outcome.reason not in ("", "not_running", "not_paused"):
                    return outcome.reason


async def comes_back_to_a_full_disk(disk: Disk) -> dict[str, Any]:
    """A supervisor that comes back to a disk without a byte reads, reports and waits; with space it goes on."""
    place, plane = disk.place, ScriptedControl()
    box = make(place, [command("slow", f"while ! test -e {place}/go; do sleep 0.05; done")])
    async with live(box) as running:
        await until(running, runs("slow.1.1"))
        hog = disk.keep_full()
        await exhausted(running)
        hog.cancel()
    disk.fill()
    os.mkfifo(place / "go")
    facts: dict[str, Any] = {}
    async with plane.listening(place / "control.sock"), live(box, gate=False, grace=0.5, early=True) as running:
        await plane.until(lambda: bool(plane.beats) and plane.beats[-1].failure is not None)
        beat = plane.beats[-1]
        facts["told"] = [beat.boot, beat.graph, getattr(beat.failure, "code", ""), beat.ready]
        facts["refused"] = (await send(running, CommandVerb.RESUME)).reason
        facts["read"] = [node.state for node in (await running.facade.snapshot()).nodes]
        facts["events"] = len(await everything(running)) > 5
        disk.clear()
        await running.engine.begun()
        await send(running, CommandVerb.RESUME)
        state = await until(running, ended)
        await asyncio.to_thread(running.engine.log.verify)
        return facts | {"again": [running.engine.log.boot, state.graph.state, sorted(state.attempts)]}


async def begins_once_there_is_space(disk: Disk) -> dict[str, Any]:
    """A supervisor that finds no space to make its log waits for it."""
    box = make(disk.place, [command("one", "true")])
    box.folder.mkdir()
    bring_in(box.folder / "repo", box.spec.repository)
    disk.fill()
    again = asyncio.create_task(to_its_end(box))
    await asyncio.wait([again], timeout=1.0)
    waits = not again.done()
    disk.clear()
    return {"waits": waits, "again": await again}


async def to_its_end(box: Sandbox) -> list[Any]:
    async with live(box) as running:
        state = await until(running, ended)
        return [running.engine.log.boot, state.graph.state]


async def merge_meets_it(disk: Disk) -> dict[str, Any]:
    return await met_by(disk, "both", "merge-tree")


async def kept_merge_meets_it(disk: Disk) -> dict[str, Any]:
    return await met_by(disk, "both", "update-ref refs/attempts/both/")


async def bundle_meets_it(disk: Disk) -> dict[str, Any]:
    return await met_by(disk, "deliver", "bundle create")


async def met_by(disk: Disk, node: str, words: str) -> dict[str, Any]:
    """Let the disk be full from the moment at which this call of Git begins; tell how the node's attempt ended."""
    place, plane, first = disk.place, ScriptedControl(), f"{node}.1.1"
    fill_at(words, place)
    made = [keeping(key, f"echo {key} > {key}.txt") for key in ("one", "two")]
    both = Node(key="both", kind=NodeKind.MERGE, needs=("one", "two"), merge=Merge())
    box = make(place, [*made, both, deliver("both")])
    async with plane.listening(place / "control.sock"), live(box, gate=False) as running:
        state = await until(running, lambda now: first in now.attempts and now.attempts[first].ended_at is not None)
        failure = state.attempts[first].failure
        disk.clear()
        return {"failure": failure and [failure.failure_class, failure.code]}


def fill_at(words: str, place: Path) -> None:
    """Put a Git before the real one that fills the disk when it is called with these words, the first time."""
    own = place.parent / "own"
    own.mkdir()
    (own / "git").write_text(
        f"""#!/bin/sh
case "$*" in *"{words}"*) mkdir '{own}/met' 2>/dev/null && cat /dev/zero >> '{place}/filler' 2>/dev/null;; esac
exec '{shutil.which("git")}' "$@"
"""
    )
    (own / "git").chmod(0o755)
    os.environ["PATH"] = f"{own}{os.pathsep}{os.environ['PATH']}"


SCENES: dict[str, Callable[[Disk], Coroutine[Any, Any, dict[str, Any]]]] = {
    scene.__name__: scene
    for scene in (
        waits_and_goes_on,
        fails_after_the_grace,
        stops_even_without_a_byte,
        comes_back_to_a_full_disk,
        begins_once_there_is_space,
        merge_meets_it,
        kept_merge_meets_it,
        bundle_meets_it,
    )
}

if __name__ == "__main__":
    control_module.FIRST_PAUSE, control_module.LONGEST_PAUSE, control_module.SHORTEST_INTERVAL = 0.01, 0.1, 0.01
    reports.HEAR_PATIENCE = 0.5
    facade.COMMAND_PATIENCE = 1.0
    running_module.SPACE_PAUSE = 0.2
    sys.stdout.write(json.dumps(asyncio.run(SCENES[sys.argv[1]](Disk(Path(sys.argv[2]))))))
