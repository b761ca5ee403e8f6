"""Carry out what an attempt with a tree needs: prepare, spawn, go, stop, reply, message."""

import logging

from sandbox_supervisor.attempts.bases import Conflict
from sandbox_supervisor.attempts.briefing import Unbriefable, brief, context
from sandbox_supervisor.attempts.confined import Unfit, render
from sandbox_supervisor.engine.bases import base_of, conflict_failure
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.endings import Endings
from sandbox_supervisor.engine.keeping import keep_work
from sandbox_supervisor.engine.outbox import Outbox
from sandbox_supervisor.engine.runners import Runners
from sandbox_supervisor.engine.sessions import Follower, runners_id
from sandbox_supervisor.engine.storage import blamed
from sandbox_supervisor.git import GitFailed
from sandbox_supervisor.graph.facts import EffectDone, Ended, Failed, Prepared, Spawned
from sandbox_supervisor.graph.rows import AttemptId, AttemptRow, Intent
from sandbox_supervisor.log import crashpoints
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.protocol.flow import NodeKind
from sandbox_supervisor.protocol.messages import Failure
from sandbox_supervisor.protocol.states import FailureClass
from sandbox_supervisor.runner.link import RunnerLink, RunnerRefused, Spawn

logger = logging.getLogger(__name__)


class Trees:
    """Handlers of the outbox. Each may run again after a crash; what has happened already happens once."""

    def __init__(self, engine: Engine, runners: Runners) -> None:
        self._engine = engine
        self._runners = runners
        self._endings = Endings(engine)
        self._prepared: dict[str, RunnerLink] = {}
        self.outbox: Outbox | None = None

    # --- a tree at its base ------------------------------------------------------------------------------------------

    async def prepare(self, intent: Intent) -> None:
        row = self._engine.attempt(intent.subject)
        node = self._engine.node(row.id.node)
        try:
            combined = await base_of(self._engine, row.id)
        except GitFailed as failed:
            await self._fail(row.id, FailureClass.WORKSPACE, "base_failed", failed.message)
            return
        if combined.conflicts:
            await self._engine.take(Failed(attempt=row.id, failure=conflict_failure(combined)))
            return
        if node.kind not in (NodeKind.APPROVAL, NodeKind.DELIVERY) and not await self.make_tree(
            row.id, combined.commit
        ):
            return
        try:
            question = await self._question(row.id)
        except Unfit as unfit:
            await self._fail_template(row.id, unfit)
            return
        await self._engine.take(Prepared(attempt=row.id, base_commit=combined.commit, question=question))

    async def _question(self, attempt: AttemptId) -> str | None:
        """Render what an approval asks; None for every other node. Raises Unfit."""
        approval = self._engine.node(attempt.node).approval
        if approval is None:
            return None
        seen = context(self._engine.spec, self._engine.state, attempt.node)
        return (await render({"question": approval.question}, seen))["question"]

    async def make_tree(self, attempt: AttemptId, base: str) -> bool:
        """Have the runner make the tree, once per runner; False when the attempt failed because it could not."""
        link = self._runners.link()
        if self._prepared.get(str(attempt)) is link:
            return True
        try:
            head = await link.prepare(str(attempt), base)
        except RunnerRefused as refused:
            await self._fail(attempt, FailureClass.WORKSPACE, refused.code, refused.message, **refused.facts)
            return False
        crashpoints.hit(Point.AFTER_EFFECT)
        if head != base:
            await self._fail(attempt, FailureClass.WORKSPACE, "wrong_head", f"The tree stands at {head}, not {base}.")
            return False
        self._prepared[str(attempt)] = link
        return True

    # --- a process ---------------------------------------------------------------------------------------------------

    async def spawn(self, intent: Intent) -> None:
        row = self._engine.attempt(intent.subject)
        try:
            spawn = await self._brief(row)
        except Unfit as unfit:
            await self._fail_template(row.id, unfit)
            return
        except Unbriefable as lacking:
            await self._fail(row.id, FailureClass.WORKSPACE, lacking.code, lacking.message)
            return
        if not await self.make_tree(row.id, row.base_commit or ""):
            return
        try:
            identity = await self._runners.link().spawn(str(row.id), spawn)
        except RunnerRefused as refused:
            await self._fail(row.id, FailureClass.INFRA, refused.code, refused.message, **refused.facts)
            return
        crashpoints.hit(Point.AFTER_EFFECT)
        await self._engine.take(Spawned(attempt=row.id, identity=identity))

    async def _brief(self, row: AttemptRow) -> Spawn:
        conflicts: tuple[Conflict, ...] = ()
        if self._engine.node(row.id.node).kind is NodeKind.MERGE:
            conflicts = (await base_of(self._engine, row.id)).conflicts
        return await brief(self._engine.spec, self._engine.repo, self._engine.state, row, conflicts)

    async def go(self, intent: Intent) -> None:
        row = self._engine.attempt(intent.subject)
        link = self._runners.link()
        follower = Follower(self._engine, row.id)
        try:
            await link.go(str(row.id))
        except RunnerRefused as refused:
            await self._fail(row.id, FailureClass.INFRA, refused.code, refused.message, **refused.facts)
            return
        data = await follower.follow(link.session(str(row.id)))
        fact = await self._endings.judge(link, row.id, data, follower.impression)
        crashpoints.hit(Point.BEFORE_RECORD)
        await self._engine.take(fact)

    # --- its end -----------------------------------------------------------------------------------------------------

    async def stop(self, intent: Intent) -> None:
        """End the tree; the session's own end, if there is one, says what became of it."""
        attempt = intent.subject
        assert self.outbox is not None  # noqa: S101  # set by the composition before anything runs
        await self.outbox.withdraw(*(f"{kind}:{attempt}" for kind in ("prepare", "spawn", "merge", "deliver")))
        row = self._engine.attempt(attempt)
        if row.identity or attempt in self._prepared:
            await self._stop_tree(attempt, kill=intent.data.get("how") == "kill")
        await self.outbox.finished(f"go:{attempt}")
        if self._engine.is_live(attempt):
            wip = await keep_work(self._engine, self._runners.link(), row) if attempt in self._prepared else None
            await self._engine.take(
                Ended(attempt=row.id, wip_commit=wip), only_if=lambda _: self._engine.is_live(attempt)
            )

    async def _stop_tree(self, attempt: str, *, kill: bool) -> None:
        try:
            await self._runners.link().stop(attempt, kill=kill)
        except RunnerRefused as refused:
            logger.info("stop.refused attempt=%s: %s", attempt, refused)  # it has no tree (any more)
        crashpoints.hit(Point.AFTER_EFFECT)

    async def on_error(self, intent: Intent, error: Exception) -> None:
        """End an attempt whose effect broke: proven empty, then failed as infrastructure."""
        if intent.subject not in self._engine.state.attempts:
            return
        row = self._engine.attempt(intent.subject)
        if row.identity:
            await self._stop_tree(intent.subject, kill=True)
        message = f"The supervisor could not carry out {intent.kind}: {type(error).__name__}: {error}"[:1000]
        if self._engine.is_live(intent.subject):
            await self._fail(row.id, FailureClass.INFRA, "internal", message)

    # --- talking to a session ----------------------------------------------------------------------------------------

    async def reply(self, intent: Intent) -> None:
        attempt = str(intent.data["attempt"])
        if self._engine.attempt(attempt).identity:
            try:
                await self._runners.link().reply(attempt, runners_id(intent.subject), intent.data["answer"])
            except RunnerRefused as refused:
                logger.info("reply.refused request=%s: %s", intent.subject, refused)
        await self._engine.take(EffectDone(intent=intent.id))

    async def message(self, intent: Intent) -> None:
        attempt = str(intent.data["attempt"])
        try:
            await self._runners.link().message(attempt, str(intent.data["text"]))
        except RunnerRefused as refused:
            logger.info("message.refused attempt=%s: %s", attempt, refused)
        await self._engine.take(EffectDone(intent=intent.id))

    async def _fail_template(self, attempt: AttemptId, unfit: Unfit) -> None:
        message = f"The template of {unfit.where or attempt.node} cannot be rendered: {unfit.message}"
        await self._fail(attempt, FailureClass.CHECK_FAILED, "template_failed", message)

    async def _fail(
        self, attempt: AttemptId, failure_class: FailureClass, code: str, message: str, **facts: object
    ) -> None:
        failure = Failure(failure_class=failure_class, code=code, message=message, facts=facts)
        await self._engine.take(Failed(attempt=attempt, failure=blamed(self._engine.log, failure)))
