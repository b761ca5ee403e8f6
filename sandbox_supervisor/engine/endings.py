"""Say what became of an attempt whose session has ended, and bring what it made into safety first."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sandbox_supervisor.attempts.bases import tree_of, unresolved
from sandbox_supervisor.attempts.confined import problems
from sandbox_supervisor.attempts.results import Refused
from sandbox_supervisor.engine.artefacts import Shortfall, collect
from sandbox_supervisor.engine.bases import base_of
from sandbox_supervisor.engine.core import SPACE_LOOK, Engine
from sandbox_supervisor.engine.keeping import Kept, keep_result, keep_work
from sandbox_supervisor.engine.sessions import Impression
from sandbox_supervisor.git import GitFailed
from sandbox_supervisor.graph.facts import Failed, Finishing, Succeeded
from sandbox_supervisor.graph.rows import AttemptId, AttemptRow
from sandbox_supervisor.protocol.codec import DEEPEST, Malformed, decode, digest, is_deep
from sandbox_supervisor.protocol.flow import Changes, Node, NodeKind
from sandbox_supervisor.protocol.messages import Failure
from sandbox_supervisor.protocol.states import FailureClass
from sandbox_supervisor.runner.link import RunnerLink, RunnerRefused


@dataclass(slots=True)
class Judgement(Exception):  # not an error of ours
    """The attempt did not do what its node asks for."""

    failure_class: FailureClass
    code: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)


class Endings:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def judge(
        self, link: RunnerLink, attempt: AttemptId, data: dict[str, Any], impression: Impression
    ) -> Succeeded | Failed:
        """Turn the data of EXIT into a fact. The attempt's tree is empty of processes already. Raises RunnerLost."""
        if data.get("outcome") == "ok" and not self._engine.attempt(str(attempt)).cancel_reason:
            await self._engine.take(Finishing(attempt=attempt))
            try:
                return await self._success_in_space(link, attempt, data, impression)
            except Judgement as judgement:
                data = {
                    "failure_class": judgement.failure_class,
                    "code": judgement.code,
                    "message": judgement.message,
                    "facts": judgement.facts,
                }
            except RunnerRefused as refused:
                data = _workspace(refused.code, refused.message, refused.facts)
            except Shortfall as shortfall:
                data = {"failure_class": FailureClass.CHECK_FAILED, "code": shortfall.code, "message": str(shortfall)}
            except (Refused, GitFailed) as refused:
                data = _workspace(refused.code, refused.message, {})
        wip = await keep_work(self._engine, link, self._engine.attempt(str(attempt)))
        return Failed(attempt=attempt, failure=_failure(data), wip_commit=wip, retry_after=data.get("retry_after"))

    async def _success_in_space(
        self, link: RunnerLink, attempt: AttemptId, data: dict[str, Any], impression: Impression
    ) -> Succeeded:
        """Store what the attempt made; when the disk is too full for it, wait and do it again, unless it is to stop."""
        while True:
            try:
                return await self._success(link, attempt, data, impression)
            except (RunnerRefused, Refused, GitFailed, OSError):
                if not await self._space_has_come(attempt):
                    raise

    async def _space_has_come(self, attempt: AttemptId) -> bool:
        """Wait for space. False at once if there is enough, or as soon as the attempt is to stop."""
        lacked = False
        while self._engine.log.is_scarce():
            if self._engine.attempt(str(attempt)).cancel_reason:
                return False
            lacked = True
            await asyncio.sleep(SPACE_LOOK)
        return lacked

    async def _success(
        self, link: RunnerLink, attempt: AttemptId, data: dict[str, Any], impression: Impression
    ) -> Succeeded:
        engine, row = self._engine, self._engine.attempt(str(attempt))
        node = engine.node(attempt.node)
        result = await self._result(link, node, row, data.get("result"))
        kept = await self._commit(link, node, row)
        if node.agent and kept and not (kept.changed or result or impression.spoke or impression.acted):
            raise Judgement(
                FailureClass.AGENT_ERROR, "empty", "The agent ended without a word, a tool call or a change."
            )
        if node.merge and kept:
            await self._check_resolved(row, kept.commit)
        artefacts = await collect(engine, link, node, row)
        passes_own = node.kind is NodeKind.MERGE or node.changes is Changes.KEEP
        commit = kept.commit if kept and passes_own else row.base_commit or ""
        tree = await asyncio.to_thread(tree_of, engine.repo, commit)
        passed_on = {"tree": tree, "result": result, "artefacts": sorted((a["name"], a["digest"]) for a in artefacts)}
        return Succeeded(
            attempt=attempt,
            result_commit=commit,
            output_digest=digest(passed_on),
            result=result,
            artefacts=tuple(artefacts),
        )

    async def _commit(self, link: RunnerLink, node: Node, row: AttemptRow) -> Kept | None:
        """Keep the tree of everything but a command that throws its changes away."""
        if node.kind is NodeKind.COMMAND and node.changes is Changes.DISCARD:
            return None
        return await keep_result(self._engine, link, row)

    async def _result(self, link: RunnerLink, node: Node, row: AttemptRow, given: Any) -> Any:
        """Give the declared result, checked; a node that declares none may still leave one."""
        agent = node.agent or (node.merge.agent if node.merge else None)
        schema = agent.result if agent else node.command.result if node.command else None
        result = given
        if result is None and (written := await link.result(str(row.id))) is not None:
            try:
                result = decode(written, Any)
            except Malformed as error:
                raise Judgement(
                    FailureClass.CHECK_FAILED, "result_malformed", f"What stands in $CAISSON_RESULT is no JSON: {error}"
                ) from None
        if is_deep(result):
            message = f"The result is nested more than {DEEPEST} deep."
            raise Judgement(FailureClass.CHECK_FAILED, "result_malformed", message)
        if schema is None:
            return result
        if result is None:
            raise Judgement(FailureClass.CHECK_FAILED, "result_missing", "The node declares a result and left none.")
        if found := await problems(schema, result):
            facts = {"problems": found}
            message = f"The result does not fit the declared schema: {'; '.join(found[:3])}"
            raise Judgement(FailureClass.CHECK_FAILED, "result_invalid", message, facts)
        return result

    async def _check_resolved(self, row: AttemptRow, commit: str) -> None:
        conflicts = (await base_of(self._engine, row.id)).conflicts
        left = await asyncio.to_thread(unresolved, self._engine.repo, commit, [conflict.path for conflict in conflicts])
        if left:
            message = f"Conflict markers are left in {', '.join(left[:10])}."
            raise Judgement(FailureClass.CHECK_FAILED, "conflict_unresolved", message, {"files": left[:100]})


def _workspace(code: str, message: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {"failure_class": FailureClass.WORKSPACE, "code": code, "message": message, "facts": facts}


def _failure(data: dict[str, Any]) -> Failure:
    """Read what the runner said about a failure; a word it does not know counts as the agent's error."""
    known = {str(member) for member in FailureClass}
    named = str(data.get("failure_class"))
    return Failure(
        failure_class=FailureClass(named) if named in known else FailureClass.AGENT_ERROR,
        code=str(data.get("code") or "failed"),
        message=str(data.get("message") or "The attempt failed."),
        facts=_facts(data),
    )


def _facts(data: dict[str, Any]) -> dict[str, Any]:
    told = {name: data[name] for name in ("exit_code", "signal", "stop_reason") if data.get(name) is not None}
    more = dict(data.get("facts") or {})
    return told | ({} if is_deep(more) else more)
