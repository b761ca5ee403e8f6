"""Carry out merge nodes: merge, and on a conflict fail, ask a person, or hand the marked tree to an agent."""

import asyncio
from collections.abc import Awaitable, Callable

from sandbox_supervisor import git
from sandbox_supervisor.attempts.bases import Combined, resolve, tree_of
from sandbox_supervisor.attempts.results import ref_of
from sandbox_supervisor.engine import clock, storage
from sandbox_supervisor.engine.bases import base_of, conflict_failure, parts_of
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.sessions import request_id
from sandbox_supervisor.graph.facts import Asked, Failed, Prepared, Succeeded
from sandbox_supervisor.graph.rows import AttemptId, Intent, RequestRow
from sandbox_supervisor.log import crashpoints
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.protocol.codec import digest
from sandbox_supervisor.protocol.flow import OnConflict
from sandbox_supervisor.protocol.messages import Failure
from sandbox_supervisor.protocol.states import FailureClass, RequestKind, RequestState

MakeTree = Callable[[AttemptId, str], Awaitable[bool]]


class Merges:
    def __init__(self, engine: Engine, make_tree: MakeTree) -> None:
        self._engine = engine
        self._make_tree = make_tree

    async def merge(self, intent: Intent) -> None:
        """Merge the node's needs. A conflict goes where the flow says; no side is picked without a person."""
        row = self._engine.attempt(intent.subject)
        merge = self._engine.node(row.id.node).merge
        try:
            combined = await base_of(self._engine, row.id)
        except git.GitFailed as failed:
            failure = Failure(failure_class=FailureClass.WORKSPACE, code="base_failed", message=failed.message)
            await self._engine.take(Failed(attempt=row.id, failure=storage.blamed(self._engine.log, failure)))
            return
        if not combined.conflicts:
            await self._succeed(row.id, combined.commit)
        elif merge and merge.on_conflict is OnConflict.AGENT:
            if await self._make_tree(row.id, combined.commit):
                await self._engine.take(Prepared(attempt=row.id, base_commit=combined.commit))
        elif merge and merge.on_conflict is OnConflict.ASK:
            await self._ask(row.id, combined)
        else:
            await self._engine.take(Failed(attempt=row.id, failure=conflict_failure(combined)))

    async def _succeed(self, attempt: AttemptId, commit: str) -> None:
        engine = self._engine
        await git.call(engine.repo, "update-ref", ref_of(attempt), commit)
        tree = await asyncio.to_thread(tree_of, engine.repo, commit)
        crashpoints.hit(Point.AFTER_EFFECT)
        passed_on = digest({"tree": tree, "result": None, "artefacts": []})
        await engine.take(Succeeded(attempt=attempt, result_commit=commit, output_digest=passed_on))

    async def _ask(self, attempt: AttemptId, combined: Combined) -> None:
        """Ask once per attempt, also across a restart, and carry out the answer."""
        request = request_id(attempt, "conflict")
        if request not in self._engine.state.requests:
            await self._engine.take(Asked(request=_request(request, attempt, combined)))
        state = await self._engine.until(lambda state: state.requests[request].state is not RequestState.OPEN)
        answer = state.requests[request].answer
        side = answer.get("option") if isinstance(answer, dict) else answer
        if side not in ("ours", "theirs"):
            await self._engine.take(Failed(attempt=attempt, failure=conflict_failure(combined)))
            return
        baseline = self._engine.spec.repository.base_commit
        parts = parts_of(self._engine, attempt)
        commit = await asyncio.to_thread(resolve, self._engine.repo, baseline, parts, theirs=side == "theirs")
        await self._succeed(attempt, commit)


def _request(request: str, attempt: AttemptId, combined: Combined) -> RequestRow:
    lines = [f"- {c.shown}: {c.ours.node} against {c.theirs.node}" for c in combined.conflicts[:100]]
    ours, theirs = combined.conflicts[0].ours.node, combined.conflicts[0].theirs.node
    return RequestRow(
        id=request,
        kind=RequestKind.QUESTION,
        node=attempt.node,
        attempt=str(attempt),
        state=RequestState.OPEN,
        title=f"{len(combined.conflicts)} file(s) conflict. Whose version counts?",
        body="\n".join(lines),
        options=(
            {"id": "ours", "name": f"Take the files of {ours}"},
            {"id": "theirs", "name": f"Take the files of {theirs}"},
            {"id": "fail", "name": "Take neither; fail"},
        ),
        fingerprint=digest([[c.shown, c.ours.commit, c.theirs.commit] for c in combined.conflicts]),
        opened_at=clock.label(),
    )
