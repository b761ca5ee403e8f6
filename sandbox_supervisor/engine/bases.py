"""Where an attempt starts, from what the graph knows."""

import asyncio

from sandbox_supervisor.attempts.bases import Combined, Part, combine
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.graph import kernel
from sandbox_supervisor.graph.rows import AttemptId
from sandbox_supervisor.protocol.messages import Failure
from sandbox_supervisor.protocol.states import FailureClass


def parts_of(engine: Engine, attempt: AttemptId) -> list[Part]:
    """Give the commits that the attempt's node gets from its needs, in order."""
    sources = kernel.sources(engine.spec.flow, engine.state, attempt.node)
    return [Part(node=source.node, commit=source.commit) for source in sources]


async def base_of(engine: Engine, attempt: AttemptId) -> Combined:
    """Compute what the attempt starts from: the baseline merged with what its node's needs pass on."""
    parts = parts_of(engine, attempt)
    return await asyncio.to_thread(combine, engine.repo, engine.spec.repository.base_commit, parts)


def conflict_failure(combined: Combined) -> Failure:
    """Say which files of which nodes disagree."""
    files = sorted({conflict.shown for conflict in combined.conflicts})
    nodes = sorted({name for conflict in combined.conflicts for name in (conflict.ours.node, conflict.theirs.node)})
    shown = ", ".join(files[:10]) + (f" and {len(files) - 10} more" if len(files) > 10 else "")
    message = (
        f"The work of {', '.join(nodes)} conflicts in {shown}. Put a merge node before this node that says how to "
        "settle it, or rework one of them."
    )
    facts = {"files": files[:100], "nodes": nodes, "count": len(files)}
    return Failure(failure_class=FailureClass.WORKSPACE, code="merge_conflict", message=message, facts=facts)
