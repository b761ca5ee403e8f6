"""Collect what an attempt leaves as artefacts: declared files, and what lies in its artefact folder."""

from collections.abc import AsyncIterator
from typing import Any

from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.graph.facts import Progress
from sandbox_supervisor.graph.rows import AttemptRow, NewEvent
from sandbox_supervisor.log import crashpoints
from sandbox_supervisor.log.artefacts import ArtefactStore, TooLarge, WrongDigest
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.flow import Node
from sandbox_supervisor.runner.link import FoundArtefact, RunnerLink


class Shortfall(Exception):  # what happened
    """A declared artefact is missing, or the task's quota is used up. ``code`` is a stable word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def collect(engine: Engine, link: RunnerLink, node: Node, row: AttemptRow) -> list[dict[str, Any]]:
    """Store every artefact of the attempt and give its references, sorted by name. Safe to repeat.

    Raises Shortfall, RunnerRefused, RunnerLost.
    """
    rules = tuple((rule.path, rule.name) for rule in node.artefacts)
    left = engine.spec.limits.artefact_quota - _stored(engine)
    found = await link.artefacts(str(row.id), rules, max(0, left))
    refused = [artefact for artefact in found if artefact.refused]
    kept = sorted((artefact for artefact in found if not artefact.refused), key=lambda artefact: artefact.name)
    await _tell_refused(engine, row, refused)
    if missing := sorted({rule.name for rule in node.artefacts} - {artefact.name for artefact in kept}):
        reasons = "; ".join(f"{artefact.name}: {artefact.refused}" for artefact in refused if artefact.name in missing)
        raise Shortfall("artefact_missing", f"Declared artefacts are missing: {', '.join(missing)}. {reasons}".strip())
    for artefact in kept:
        chunks = link.artefact_bytes(str(row.id), artefact.path)
        await _store(engine.log.artefacts, artefact, chunks)
        crashpoints.hit(Point.AFTER_EFFECT)
    return [_reference(artefact) for artefact in kept]


async def _store(store: ArtefactStore, artefact: FoundArtefact, chunks: AsyncIterator[bytes]) -> None:
    if store.has(artefact.digest):
        return
    try:
        await store.store(chunks, expected=artefact.digest, limit=artefact.size)
    except (TooLarge, WrongDigest) as error:
        raise Shortfall("artefact_changed", f"Artefact {artefact.name} is not what was announced: {error}.") from None


def _stored(engine: Engine) -> int:
    """Add up the bytes that the task's artefacts take, each content once."""
    sizes = {a["digest"]: int(a["size"]) for row in engine.state.attempts.values() for a in row.artefacts}
    return sum(sizes.values())


async def _tell_refused(engine: Engine, row: AttemptRow, refused: list[FoundArtefact]) -> None:
    events = tuple(
        NewEvent(
            kind=EventKind.ARTEFACT_REFUSED,
            node=row.id.node,
            generation=row.id.generation,
            attempt=str(row.id),
            data={"name": artefact.name, "reason": artefact.refused},
        )
        for artefact in refused[:100]
    )
    if events:
        await engine.take(Progress(attempt=row.id, events=events))


def _reference(artefact: FoundArtefact) -> dict[str, Any]:
    path = artefact.path.partition("/")[2] if artefact.path.startswith("tree/") else artefact.path
    return {
        "name": artefact.name,
        "path": path,
        "digest": artefact.digest,
        "size": artefact.size,
        "media_type": artefact.media_type,
    }
