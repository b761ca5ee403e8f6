"""Bring artefacts and final snapshots out of the sandbox, for as long as there is a control plane to take them."""

import asyncio
import logging

from sandbox_supervisor.control import Control, ControlEnded, ControlRefused
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.views import snapshot
from sandbox_supervisor.graph.facts import EffectDone
from sandbox_supervisor.graph.rows import Intent, NewEvent
from sandbox_supervisor.log import crashpoints
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import EventKind

PARALLEL_UPLOADS = 2

logger = logging.getLogger(__name__)


class Departures:
    def __init__(self, engine: Engine, control: Control | None) -> None:
        self._engine = engine
        self._control = control
        self._slots = asyncio.Semaphore(PARALLEL_UPLOADS)
        self._archiving = asyncio.Lock()
        self._wanted = asyncio.Event()

    async def upload(self, intent: Intent) -> None:
        """Upload one artefact by content. What the control plane refuses stays readable here."""
        events: tuple[NewEvent, ...] = ()
        if self._control is not None:
            digest = intent.subject
            path = self._engine.log.artefacts.path(digest)
            try:
                async with self._slots:
                    await self._control.upload_artefact(digest, path, self._name(digest))
                events = (NewEvent(kind=EventKind.ARTEFACT_UPLOADED, data={"digest": digest}),)
            except ControlRefused as refused:
                logger.warning("artefact.refused digest=%s code=%s", digest, refused.code)
                data = {"name": self._name(digest), "reason": f"{refused.code}: {refused.message}"}
                events = (NewEvent(kind=EventKind.ARTEFACT_REFUSED, data=data),)
        crashpoints.hit(Point.AFTER_EFFECT)
        await self._engine.take(EffectDone(intent=intent.id, events=events))

    async def archive(self, intent: Intent) -> None:
        await self.archive_snapshot()
        crashpoints.hit(Point.AFTER_EFFECT)
        await self._engine.take(EffectDone(intent=intent.id))

    def want_archive(self) -> None:
        """Hear that the control plane wants a snapshot; it says so until it has one."""
        self._wanted.set()

    async def archive_when_wanted(self) -> None:
        """Serve such wishes for ever, one after the other."""
        while True:
            await self._wanted.wait()
            try:
                await self.archive_snapshot()
            except ControlEnded as ended:
                logger.info("archive.too_late: %s", ended)
            self._wanted.clear()

    async def archive_snapshot(self) -> None:
        """Hand the present snapshot to the control plane; one at a time."""
        if self._control is None:
            return
        async with self._archiving:
            state, seq = await self._engine.log.read()
            picture = snapshot(self._engine, state, seq)
            try:
                await self._control.archive("snapshot", codec.encode(picture))
            except ControlRefused as refused:
                logger.warning("archive.refused code=%s: %s", refused.code, refused.message)

    def _name(self, digest: str) -> str:
        for row in self._engine.state.attempts.values():
            for artefact in row.artefacts:
                if artefact["digest"] == digest:
                    return str(artefact["name"])
        return digest
