"""Bring an attempt's commit out of its tree and into ``repo``."""

import asyncio
import logging
from dataclasses import dataclass

from sandbox_supervisor.attempts.results import Refused, take
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.git import GitFailed
from sandbox_supervisor.graph.rows import AttemptRow
from sandbox_supervisor.log import crashpoints
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.runner.link import RunnerLink, RunnerRefused

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    commit: str
    tree: str
    changed: bool


async def keep_result(engine: Engine, link: RunnerLink, row: AttemptRow, *, wip: bool = False) -> Kept:
    """Commit what stands in the attempt's tree and store it under its ref. Safe to repeat.

    Raises RunnerRefused, results.Refused, GitFailed, RunnerLost.
    """
    base = row.base_commit or ""
    title = engine.node(row.id.node).title or row.id.node
    state = " (unfinished)" if wip else ""
    message = f"{title}{state}\n\nTask: {engine.spec.task.id}\nAttempt: {row.id}\n"
    committed = await link.commit(str(row.id), message=message, base_commit=base)
    tree = await asyncio.to_thread(take, engine.repo, row.id, committed, base=base, wip=wip)
    crashpoints.hit(Point.AFTER_EFFECT)
    return Kept(commit=committed.commit, tree=tree, changed=committed.changed)


async def keep_work(engine: Engine, link: RunnerLink, row: AttemptRow) -> str | None:
    """Keep the work of an attempt that did not succeed, as far as there is any. Raises RunnerLost only."""
    if not row.base_commit:
        return None
    try:
        kept = await keep_result(engine, link, row, wip=True)
    except (RunnerRefused, Refused, GitFailed) as refused:
        logger.warning("work.not_kept attempt=%s: %s", row.id, refused)
        return None
    return kept.commit if kept.changed else None
