"""What the supervisor may ask of the runner, one method a call; the names are those of ``RunnerLink``."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox_supervisor import isolation
from sandbox_supervisor.consumption import disk_of, memory_of
from sandbox_supervisor.graph.identity import Identity
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.runner import artefacts, files, leftovers, shim, snapshots, trees
from sandbox_supervisor.runner.environment import child_environment
from sandbox_supervisor.runner.execution import DEFAULT_LADDER, Execution, Ladder, Phase, Plan, Send
from sandbox_supervisor.runner.folders import Folder
from sandbox_supervisor.runner.link import RunnerRefused, Spawn, SpawnKind, Taken
from sandbox_supervisor.runner.programs import ROOT, job_of, program

CHUNK = 256 * 1024
READ_LIMIT = 1024 * 1024
TREES_LIMIT = 256  # alive at once; the supervisor's own limits lie far below


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where this runner works and how it isolates."""

    work: Path
    repo: Path
    ctl: Path
    image: Path | None
    isolation: isolation.Isolation
    memory: int = 0
    ladder: Ladder = DEFAULT_LADDER


Answer = tuple[Any, bytes]


@dataclass(slots=True)
class Operations:
    """Calls about one attempt's files run one after the other; different attempts do not wait for each other."""

    place: Place
    sender: Callable[[str], Send]
    executions: dict[str, Execution] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        """Carry out one call. Raises RunnerRefused."""
        operation = _OPERATIONS.get(name)
        if operation is None:
            raise RunnerRefused("unknown_call", f"there is no call {name[:40]!r}")
        try:
            return await operation(self, **arguments)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise RunnerRefused("bad_call", f"{name}: the arguments do not fit") from None
            raise

    # --- process trees -----------------------------------------------------------------------------------------------

    async def spawn(self, attempt: str, spawn: dict[str, Any]) -> Answer:
        running = self.executions.get(attempt)
        if running is not None and running.phase is not Phase.EMPTY:
            raise RunnerRefused("already_spawned", f"{attempt} has a process tree")
        if sum(execution.phase is not Phase.EMPTY for execution in self.executions.values()) >= TREES_LIMIT:
            raise RunnerRefused("too_many", f"{TREES_LIMIT} process trees are alive")
        folder = self._folder(attempt)
        execution = Execution(
            self._plan(attempt, folder, codec.convert(spawn, Spawn)),
            self.sender(attempt),
            lambda: self._alone(attempt, snapshots.changed_since_birth, folder, self.place.repo),
        )
        self.executions[attempt] = execution
        return codec.plain(await execution.start()), b""

    def _plan(self, attempt: str, folder: Folder, spawn: Spawn) -> Plan:
        place = self.place
        env = child_environment(attempt, folder, place.image, spawn.env)
        prefix = isolation.attempt_prefix(
            place.isolation, folder=folder, repo=place.repo, ctl=place.ctl, image=place.image
        )
        return Plan(
            attempt=attempt,
            spawn=spawn,
            argv=(*prefix, *program(spawn)),
            env=env if spawn.kind is SpawnKind.COMMAND else env | _driver_env(),
            cwd=folder.tree,
            job=job_of(spawn, folder, env, exit_patience=place.ladder.close),
            wrappers=isolation.WRAPPERS if prefix else 0,
            limits={"data": place.memory, "nice": 5},
            ladder=place.ladder,
        )

    async def go(self, attempt: str) -> Answer:
        self._execution(attempt).go()
        return None, b""

    async def stop(self, attempt: str, kill: bool) -> Answer:
        await self._execution(attempt).stop(kill=kill)
        return None, b""

    async def reply(self, attempt: str, request_id: str, answer: dict[str, Any]) -> Answer:
        await self._execution(attempt).tell({"t": "reply", "request_id": request_id, "answer": answer})
        return None, b""

    async def message(self, attempt: str, text: str) -> Answer:
        await self._execution(attempt).tell({"t": "message", "text": text})
        return None, b""

    async def leftovers(self, identities: list[dict[str, Any]]) -> Answer:
        alive = (e for e in self.executions.values() if e.phase is not Phase.EMPTY)
        known = frozenset(e.identity.pid for e in alive if e.identity)
        await asyncio.to_thread(
            leftovers.end, [codec.convert(one, Identity) for one in identities], self.place.work, known
        )
        return None, b""

    async def taken(self) -> Answer:
        return codec.plain(await asyncio.to_thread(_taken, self.place.work)), b""

    async def kill_all(self) -> None:
        """Kill every tree and wait for the proof."""
        executions = list(self.executions.values())
        await asyncio.gather(*(execution.stop(kill=True) for execution in executions))
        await asyncio.gather(*(execution.forget() for execution in executions))

    # --- files -------------------------------------------------------------------------------------------------------

    async def prepare(self, attempt: str, base_commit: str) -> Answer:
        folder = Folder.of(self.place.work, attempt)
        return await self._alone(attempt, trees.prepare, folder, self.place.repo, base_commit), b""

    async def commit(self, attempt: str, message: str, base_commit: str) -> Answer:
        folder = self._folder(attempt)
        made = await self._alone(attempt, snapshots.commit, folder, self.place.repo, message, base_commit)
        return {"commit": made.commit, "tree": made.tree, "changed": made.changed, "pack": made.pack_size}, b""

    async def pack(self, attempt: str, offset: int) -> Answer:
        return None, await self._alone(attempt, snapshots.pack_bytes, self._folder(attempt), offset, READ_LIMIT)

    async def diff(self, attempt: str, base_commit: str) -> Answer:
        folder = self._folder(attempt)
        size = await self._alone(attempt, snapshots.diff, folder, self.place.repo, base_commit)
        return {"size": size}, b""

    async def diff_bytes(self, attempt: str, offset: int) -> Answer:
        return None, await self._alone(attempt, snapshots.diff_bytes, self._folder(attempt), offset, READ_LIMIT)

    async def artefacts(self, attempt: str, rules: list[list[str]], quota: int) -> Answer:
        pairs = tuple((str(pattern), str(name)) for pattern, name in rules)
        found = await self._alone(attempt, artefacts.find, self._folder(attempt), pairs, quota)
        return codec.plain(found), b""

    async def artefact(self, attempt: str, path: str, offset: int) -> Answer:
        return None, await asyncio.to_thread(artefacts.read, self._folder(attempt), path, offset, CHUNK)

    async def result(self, attempt: str) -> Answer:
        data = await asyncio.to_thread(artefacts.result, self._folder(attempt))
        return data is not None, data or b""

    async def list_files(self, attempt: str, path: str) -> Answer:
        return await asyncio.to_thread(files.list_folder, self._folder(attempt).tree, path), b""

    async def read_file(self, attempt: str, path: str, offset: int, length: int) -> Answer:
        tree = self._folder(attempt).tree
        data, size = await asyncio.to_thread(files.read, tree, path, offset, min(length, READ_LIMIT))
        return size, data

    # --- lookups -----------------------------------------------------------------------------------------------------

    async def _alone(self, attempt: str, function: Callable[..., Any], *arguments: Any) -> Any:
        async with self._locks.setdefault(attempt, asyncio.Lock()):
            return await asyncio.to_thread(function, *arguments)

    def _execution(self, attempt: str) -> Execution:
        execution = self.executions.get(attempt)
        if execution is None:
            raise RunnerRefused("unknown_attempt", f"{attempt[:80]!r} was not spawned by this runner")
        return execution

    def _folder(self, attempt: str) -> Folder:
        folder = Folder.of(self.place.work, attempt)
        if not folder.tree.is_dir() or folder.tree.is_symlink():
            raise RunnerRefused("unknown_attempt", f"{attempt!r} has no tree here")
        return folder


def _taken(work: Path) -> Taken:
    me = os.getpid()
    pids = [me, *(pid for pid, _, _ in shim.descendants(me))]
    return Taken(disk=disk_of(work), memory=memory_of(pids))


def _driver_env() -> dict[str, str]:
    """What the driver host itself needs; the agent below it gets none of it."""
    return {"PYTHONPATH": str(ROOT)}


_OPERATIONS: dict[str, Callable[..., Awaitable[Answer]]] = {
    operation.__name__: operation
    for operation in (
        Operations.spawn, Operations.go, Operations.stop, Operations.reply, Operations.message, Operations.leftovers,
        Operations.prepare, Operations.commit, Operations.pack, Operations.diff, Operations.diff_bytes,
        Operations.artefacts, Operations.artefact, Operations.result, Operations.list_files,
        Operations.read_file, Operations.taken,
    )
}  # fmt: skip
