"""One process tree of an attempt, from its shim's birth to the proof that nothing of it is left."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from io import FileIO
from pathlib import Path
from typing import Any

from sandbox_supervisor.git import GitFailed
from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.runner import claims, verdicts, wire
from sandbox_supervisor.runner.children import children
from sandbox_supervisor.runner.hostline import HostLine
from sandbox_supervisor.runner.link import RunnerRefused, SessionEventKind, Spawn, SpawnKind

SHIM = Path(__file__).with_name("shim.py")
CHUNK = 64 * 1024
BIRTH = 20.0  # seconds in which a shim must have reported itself
DRAIN = 2.0  # seconds for what is left in a pipe whose writers are all dead
PROOF = 5.0  # seconds that a shim gets to empty its tree
Send = Callable[[SessionEventKind, dict[str, Any], bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Seconds of patience on each rung before the next one."""

    cancel: float = 10.0
    close: float = 2.0
    term: float = 5.0


DEFAULT_LADDER = Ladder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything needed to start a tree. ``argv`` includes the isolation's prefix, ``wrappers`` says how many processes
    that puts between shim and program."""

    attempt: str
    spawn: Spawn
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    job: dict[str, Any] = field(default_factory=dict)  # for the driver host
    wrappers: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    ladder: Ladder = DEFAULT_LADDER


class Phase(StrEnum):
    BORN = "born"  # the shim waits for go
    RUNNING = "running"
    ENDING = "ending"  # the first process has ended, or everything is being killed
    EMPTY = "empty"  # proven


class Execution:
    """Owned by the runner's event loop. ``empty`` is set once the kernel has said that the tree is gone."""

    def __init__(self, plan: Plan, send: Send, changed: Callable[[], Awaitable[bool]]) -> None:
        """``changed`` says whether the attempt's tree differs from its base; asked only when the tree is empty."""
        self.plan = plan
        self._changed = changed
        self.phase = Phase.BORN
        self.identity: Identity | None = None
        self.stopping = False
        self.empty = asyncio.Event()
        self._send = send
        self._ending = asyncio.Event()
        self._hurry = asyncio.Event()
        self._emitting = 0  # how many senders wait for the supervisor to read
        self._exited: dict[str, int] | None = None
        self._failed: str | None = None
        self._proven = False  # the shim itself has seen the tree empty
        self._host: HostLine | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._shim: subprocess.Popen[bytes] | None = None
        self._control: asyncio.StreamWriter | None = None

    # --- birth -------------------------------------------------------------------------------------------------------

    async def start(self) -> Identity:
        """Start the shim and give its identity; nothing of the plan runs yet. Raises RunnerRefused."""
        ours, theirs = socket.socketpair()
        fds, readers = self._streams()
        try:
            self._shim = children.start(
                [sys.executable, "-I", "-S", "-B", str(SHIM), str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(), *fds.values()),
            )
        except OSError as error:
            ours.close()
            raise RunnerRefused("spawn_failed", f"the shim could not be started: {error}") from None
        finally:
            theirs.close()
            for fd in fds.values():
                os.close(fd)
        for stream, source in readers.items():
            self._pumps.append(asyncio.create_task(self._pump(stream, source), name=f"{self.plan.attempt}:{stream}"))
        try:
            async with asyncio.timeout(BIRTH):
                reader, self._control = await asyncio.open_connection(sock=ours)
                self._order(fds)
                identity = json.loads(await reader.readline())["identity"]
        except (TimeoutError, ValueError, KeyError):
            await self._abandon(ours)
            raise RunnerRefused("spawn_failed", "the shim did not report itself") from None
        except BaseException:  # the supervisor went away meanwhile
            await self._abandon(ours)
            raise
        self.identity = Identity(**identity)
        self._tasks.append(asyncio.create_task(self._listen(reader), name=f"{self.plan.attempt}:shim"))
        self._tasks.append(asyncio.create_task(self._finish(), name=f"{self.plan.attempt}:finish"))
        return self.identity

    def _streams(self) -> tuple[dict[str, int], dict[str, FileIO]]:
        """Open what the program writes to: descriptor number → our number for the shim, and our reading ends."""
        out, out_theirs = os.pipe()
        err, err_theirs = os.pipe()
        fds = {"1": out_theirs, "2": err_theirs}
        readers = {"stdout": os.fdopen(out, "rb", buffering=0), "stderr": os.fdopen(err, "rb", buffering=0)}
        if self.plan.spawn.kind is SpawnKind.DRIVER:
            ours, theirs = socket.socketpair()
            self._host = HostLine(ours)
            fds["3"] = theirs.detach()
        return fds, readers

    def _order(self, fds: dict[str, int]) -> None:
        plan = self.plan
        order = {
            "argv": plan.argv, "env": plan.env, "cwd": str(plan.cwd), "fds": fds, "limits": plan.limits,
            "wrappers": plan.wrappers,
        }  # fmt: skip
        self._say(order)

    def _say(self, word: Any) -> None:
        if self._control is not None and not self._control.is_closing():
            self._control.write(json.dumps(word).encode() + b"\n")

    async def _abandon(self, control: socket.socket) -> None:
        """Give up a shim that was never told to go: it has run nothing, and ends with its control stream."""
        if self._control is not None:
            self._control.close()
        control.close()
        if self._shim is not None:
            self._shim.kill()
            await asyncio.to_thread(children.wait, self._shim)
        self._ending.set()
        self.phase = Phase.EMPTY
        self.empty.set()
        await self.forget()

    def go(self) -> None:
        """Let the program run. Raises RunnerRefused unless the shim waits for it."""
        if self.phase is not Phase.BORN or self.stopping:
            raise RunnerRefused("not_waiting", f"{self.plan.attempt} does not wait for go")
        self.phase = Phase.RUNNING
        self._say("go")
        if self._host is not None:
            self._pumps.append(asyncio.create_task(self._talk(self._host), name=f"{self.plan.attempt}:host"))

    # --- what comes out ----------------------------------------------------------------------------------------------

    async def _pump(self, stream: str, pipe: FileIO) -> None:
        """Pass bytes on as they come; a reader that is slow makes the process wait in its write."""
        reader = asyncio.StreamReader(limit=CHUNK)
        with pipe:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), pipe
            )
            try:
                while data := await reader.read(CHUNK):
                    await self._emit(SessionEventKind.OUTPUT, {"stream": stream}, data)
            except ConnectionError:
                pass  # the supervisor is gone: the tree is being killed
            finally:
                transport.close()

    async def _emit(self, kind: SessionEventKind, data: dict[str, Any], payload: bytes) -> None:
        self._emitting += 1
        try:
            await self._send(kind, data, payload)
        finally:
            self._emitting -= 1

    async def _talk(self, host: HostLine) -> None:
        """Hand the driver host its job and pass on what it reports, checked."""
        try:
            await host.open(self.plan.job)
            async for kind, data, payload in host.events():
                await self._emit(kind, data, payload)
        except (wire.WireError, claims.Nonsense) as error:
            host.broken = str(error)
            self._say("kill")
        except (ConnectionError, OSError):
            pass  # it has ended; the shim says how

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Follow the shim's reports. A shim that ends without the proof leaves the proof to the runner."""
        with suppress(ConnectionError, ValueError):
            while line := await reader.readline():
                self._heard(json.loads(line))
        if self._shim is not None:
            await asyncio.to_thread(children.wait, self._shim)
        if not self._proven:
            await asyncio.to_thread(children.sweep)
        self._ending.set()
        if self._control is not None:
            self._control.close()
        self.phase = Phase.EMPTY
        self.empty.set()

    def _heard(self, report: dict[str, Any]) -> None:
        if "exited" in report:
            self._exited = report["exited"]
            self._ending.set()
            self.phase = Phase.ENDING
        elif "failed" in report:
            self._failed = str(report["failed"])
            self._ending.set()
        elif "empty" in report:
            self._proven = True

    async def _finish(self) -> None:
        """Once the tree is empty: pass on what is left in the pipes, then say how it ended."""
        await self.empty.wait()
        await self._drain()
        end = verdicts.Ending(
            kind=self.plan.spawn.kind, stopped=self.stopping, exited=self._exited, failed=self._failed,
            report=self._host.report if self._host else None, broken=self._host.broken if self._host else None,
        )  # fmt: skip
        if self._host is not None:
            self._host.close()
        verdict = verdicts.empty_session(end) if await self._nothing_came(end) else verdicts.judge(end)
        with suppress(ConnectionError):
            await self._send(SessionEventKind.EXIT, verdict, b"")

    async def _nothing_came(self, end: verdicts.Ending) -> bool:
        """Say whether a session ended well without a word, a tool call or a change."""
        if end.stopped or end.broken or not end.report or not end.report["quiet"]:
            return False
        try:
            return not await self._changed()
        except (OSError, RunnerRefused, GitFailed):  # the commit that follows will say what is wrong with the tree
            return False

    async def forget(self) -> None:
        """Drop what nobody will read any more. Only for an empty tree."""
        for task in (*self._pumps, *self._tasks):
            task.cancel()
        await asyncio.gather(*self._pumps, *self._tasks, return_exceptions=True)

    async def _drain(self) -> None:
        """Wait until the pipes are read out. One that stays open and silent is held by a process outside the tree."""
        late: set[asyncio.Task[None]] = set(self._pumps)
        while late:
            done, late = await asyncio.wait(late, timeout=DRAIN, return_when=asyncio.FIRST_COMPLETED)
            if not done and not self._emitting:
                for pump in late:
                    pump.cancel()

    # --- the way out -------------------------------------------------------------------------------------------------

    async def tell(self, word: dict[str, Any]) -> None:
        """Pass a reply or a message to the driver host. Raises RunnerRefused when nobody listens."""
        if self._host is None or self.phase is not Phase.RUNNING:
            raise RunnerRefused("no_session", f"{self.plan.attempt} has no session that listens")
        try:
            await self._host.send(word)
        except (ConnectionError, OSError):
            raise RunnerRefused("no_session", f"the session of {self.plan.attempt} has ended") from None

    async def stop(self, *, kill: bool) -> None:
        """Climb the ladder until the tree is proven empty. A second call with ``kill`` hastens the first."""
        if kill:
            self._hurry.set()
        if not self._ending.is_set():
            self.stopping = True
        if self.phase is Phase.BORN:
            self._hurry.set()
        for act, patience in self._rungs():
            if self._hurry.is_set() or self._ending.is_set():
                break
            await act()
            await self._wait(patience)
        if not self._ending.is_set():
            self._say("kill")
        await self._prove()

    async def _prove(self) -> None:
        """Wait for the proof. A shim that fails to give it, perhaps because its tree has stopped it, is killed: then
        the runner has its orphans and empties them itself."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PROOF):
                await self.empty.wait()
        if not self.empty.is_set() and self._shim is not None:
            self._shim.kill()
        await self.empty.wait()

    def _rungs(self) -> list[tuple[Callable[[], Awaitable[None]], float]]:
        ladder = self.plan.ladder
        rungs: list[tuple[Callable[[], Awaitable[None]], float]] = [(self._terminate, ladder.term)]
        if self._host is not None:
            rungs = [(self._cancel, ladder.cancel), (self._close, ladder.close), *rungs]
        return rungs

    async def _cancel(self) -> None:
        await self._whisper({"t": "cancel"})

    async def _close(self) -> None:
        await self._whisper({"t": "close"})

    async def _terminate(self) -> None:
        self._say("term")

    async def _whisper(self, word: dict[str, Any]) -> None:
        """Tell the host if it still listens; the next rung comes anyway."""
        with suppress(ConnectionError, OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                if self._host is not None:
                    await self._host.send(word)

    async def _wait(self, patience: float) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self._ending, self._hurry)]
        await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
