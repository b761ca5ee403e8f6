"""Put a supervisor together, start it after whatever happened before, and keep its tasks in one group."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_supervisor.control import Control
from sandbox_supervisor.engine.consumption import Consumption
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.deliveries import Deliveries
from sandbox_supervisor.engine.departures import Departures
from sandbox_supervisor.engine.facade import Facade
from sandbox_supervisor.engine.merges import Merges
from sandbox_supervisor.engine.outbox import Handler, Outbox
from sandbox_supervisor.engine.reports import Reports, SandboxIdentity
from sandbox_supervisor.engine.runners import Runners
from sandbox_supervisor.engine.scheduler import Scheduler
from sandbox_supervisor.engine.storage import GRACE
from sandbox_supervisor.engine.trees import Trees
from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.facts import Restarted
from sandbox_supervisor.graph.rows import Change
from sandbox_supervisor.log import Log, StorageCorrupt, StorageFull
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.spec import TaskSpecification
from sandbox_supervisor.runner.gate import RunnerGate

FOLDER_CHECK = 2.0  # seconds
SPACE_PAUSE = 5.0  # seconds between two tries to open the log on a full disk

logger = logging.getLogger(__name__)

Service = Callable[["Running"], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a supervisor is started with. ``services`` run beside it until it ends: the server, a follower."""

    spec: TaskSpecification
    folder: Path
    nonce: str
    identity: SandboxIdentity = field(default_factory=SandboxIdentity)
    task_token: str | None = None
    storage_grace: float = GRACE
    services: tuple[Service, ...] = field(default_factory=tuple)


class FolderGone(Exception):  # not an error of ours
    """The sandbox's folder has vanished: nothing is left to supervise."""


class Running:
    """A supervisor that is up. ``facade`` is what others may ask of it."""

    def __init__(self, options: Options, engine: Engine, group: asyncio.TaskGroup) -> None:
        engine.watchers.clear()
        self.options = options
        self.engine = engine
        spec = options.spec
        self.control = Control(spec.control, token=options.task_token or "") if spec.control else None
        self.gate = RunnerGate(options.folder / "ctl", options.nonce)
        self.scheduler = Scheduler(engine)
        self.runners = Runners(engine, self.gate, self._on_runner)
        self.consumption = Consumption(engine, self.runners)
        self.reports = Reports(
            engine, options.identity, self.runners, self.consumption, storage_grace=options.storage_grace
        )
        self.deliveries = Deliveries(engine, self.control)
        self.departures = Departures(engine, self.control)
        self.trees = Trees(engine, self.runners)
        self.outbox = Outbox(engine, group, self._handlers(), self.trees.on_error)
        self.trees.outbox = self.outbox
        self.facade = Facade(
            engine,
            runners=self.runners,
            reports=self.reports,
            deliveries=self.deliveries,
            departures=self.departures,
            on_heard=self.outbox.revive,
        )
        self._group = group

    def _handlers(self) -> dict[EffectKind, Handler]:
        trees = self.trees
        return {
            EffectKind.PREPARE: trees.prepare,
            EffectKind.SPAWN: trees.spawn,
            EffectKind.GO: trees.go,
            EffectKind.STOP: trees.stop,
            EffectKind.REPLY: trees.reply,
            EffectKind.MESSAGE: trees.message,
            EffectKind.DELIVER: self.deliveries.deliver,
            EffectKind.MERGE: Merges(self.engine, trees.make_tree).merge,
            EffectKind.UPLOAD: self.departures.upload,
            EffectKind.ARCHIVE: self.departures.archive,
        }

    def _on_runner(self, connected: bool) -> None:
        self.scheduler.runner_ready = connected
        self.reports.refresh()
        if connected:
            self.outbox.revive()
            self.scheduler.wake()

    async def start(self) -> None:
        """Listen for a runner, replay the outbox, schedule. A damaged log is only read; on a disk without a byte the
        same is true until there is space."""
        await self.gate.start()
        self._own(self._begin(), "begin")
        if self.control:
            self._own(self.control.run(self.facade), "heartbeat")
            self._own(self.departures.archive_when_wanted(), "archive")
            self._own(self.consumption.follow(), "consumption")
        self._own(_watch(self.options.folder), "folder")
        for service in self.options.services:
            self._own(service(self), "service")

    async def _begin(self) -> None:
        if not self.engine.log.damage:
            await _take_over(self.engine)
            self.outbox.reconcile()
            self._own(self.scheduler.dispatch(), "dispatch")
            self._own(self.scheduler.fire_timers(), "timers")
        self._own(self.runners.follow(), "runners")

    def _own(self, work: Awaitable[None], name: str) -> None:
        self._group.create_task(_coroutine(work), name=name)

    async def close(self) -> None:
        """Start nothing more and let go of runner and control plane."""
        self.outbox.close()
        await self.gate.close()
        if self.control:
            await self.control.close()


async def supervise(options: Options) -> None:
    """Run until cancelled. Once its log is damaged it only reads and reports.

    Raises FolderGone (in a group), AlreadyLocked.
    """
    log = await _open(options)
    try:
        engine = Engine(options.spec, options.folder, log, await asyncio.to_thread(log.load))
        if not log.damage:
            await _run(options, engine)
        logger.error("storage.corrupt: %s", log.damage)
        await _run(options, engine)
    finally:
        await log.close()


async def _open(options: Options) -> Log:
    """Open the log. Where there is no space to make one, wait: a supervisor that keeps ending ends the sandbox."""
    while True:
        try:
            limit = options.spec.limits.attempt_log
            return await asyncio.to_thread(Log.open, options.folder / "log", damaged_ok=True, attempt_log=limit)
        except StorageFull:
            logger.warning("storage.full: the log cannot be opened yet")
        await asyncio.sleep(SPACE_PAUSE)
        if not options.folder.exists():
            raise FolderGone(str(options.folder))


async def _run(options: Options, engine: Engine) -> None:
    """Run until cancelled, or until the log turns out to be damaged: then no runner and no tree is left."""
    try:
        async with asyncio.TaskGroup() as group:
            running = Running(options, engine, group)
            try:
                await running.start()
                await asyncio.Event().wait()
            finally:
                await running.close()
    except* StorageCorrupt:
        if not engine.log.damage:
            raise
    finally:
        await engine.settle()


async def _take_over(engine: Engine) -> None:
    """Write the rows of a new graph if there is none, and that a supervisor has taken over."""
    spec, log = engine.spec, engine.log
    rows = Change()
    if engine.state == kernel.EMPTY:
        rows = kernel.initial(
            spec.flow,
            task=spec.task.id,
            inputs=spec.inputs,
            attempts_limit=spec.limits.attempts_per_task,
            specification=codec.digest(spec),
        )
    await engine.begin(rows, Restarted(boot=log.boot, alive_until=log.alive_until, same_boot=log.same_boot))


async def _watch(folder: Path) -> None:
    """Raise FolderGone once the folder is not the one that it was."""
    inode = _inode(folder)
    while _inode(folder) == inode:  # noqa: ASYNC110  # nothing tells of a folder's end: it is looked at
        await asyncio.sleep(FOLDER_CHECK)
    raise FolderGone(str(folder))


def _inode(folder: Path) -> int | None:
    try:
        return folder.stat().st_ino
    except FileNotFoundError:
        return None


async def _coroutine(work: Awaitable[None]) -> None:
    await work
