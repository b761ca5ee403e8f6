"""Carry out delivery nodes: bundle the work, hand it to the control plane, wait for what became of it."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from sandbox_supervisor.attempts.bases import tree_of
from sandbox_supervisor.attempts.briefing import context
from sandbox_supervisor.attempts.bundles import Bundle, bundle, keep
from sandbox_supervisor.attempts.confined import Unfit, render
from sandbox_supervisor.control import Control, ControlRefused
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.storage import blamed
from sandbox_supervisor.git import GitFailed
from sandbox_supervisor.graph.facts import Failed, Progress, Succeeded
from sandbox_supervisor.graph.rows import AttemptId, Intent, NewEvent
from sandbox_supervisor.log import crashpoints
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.protocol.codec import digest
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.messages import DeliveryAnswer, DeliveryRequest, DeliveryState, Failure
from sandbox_supervisor.protocol.states import FailureClass

FIRST_POLL, LONGEST_POLL = 0.25, 15.0  # seconds between two questions, doubling, when no heartbeat says anything
_OPEN = frozenset({DeliveryState.RECEIVED, DeliveryState.QUEUED})
_GOOD = frozenset({DeliveryState.DELIVERED, DeliveryState.NOTHING})

logger = logging.getLogger(__name__)


class Deliveries:
    """``control`` is None for a graph without a control plane: then its ``repo`` keeps the task branch."""

    def __init__(self, engine: Engine, control: Control | None) -> None:
        self._engine = engine
        self._control = control
        self._settled: dict[str, asyncio.Event] = {}
        self._bundling = asyncio.Lock()

    def settled(self, delivery: str) -> None:
        """Hear from a heartbeat that a delivery was settled."""
        if event := self._settled.get(delivery):
            event.set()

    async def deliver(self, intent: Intent) -> None:
        attempt = self._engine.attempt(intent.subject).id
        try:
            if self._control is None:
                await self._keep_here(attempt)
            else:
                await self._hand_over(self._control, attempt)
        except Unfit as unfit:
            await self._fail(attempt, "template_failed", f"{unfit.where}: {unfit.message}")
        except GitFailed as failed:
            failure = Failure(failure_class=FailureClass.CHECK_FAILED, code="bundle_failed", message=failed.message)
            await self._engine.take(Failed(attempt=attempt, failure=blamed(self._engine.log, failure)))
        except ControlRefused as refused:
            await self._fail(attempt, refused.code, f"The control plane refused the delivery: {refused.message}")

    async def _commits(self, attempt: AttemptId) -> tuple[str, str]:
        """Give baseline and result; equal when there is nothing to deliver."""
        base = self._engine.spec.repository.base_commit
        commit = self._engine.attempt(str(attempt)).base_commit or base
        trees = [await asyncio.to_thread(tree_of, self._engine.repo, known) for known in (base, commit)]
        return base, base if trees[0] == trees[1] else commit

    async def _keep_here(self, attempt: AttemptId) -> None:
        base, commit = await self._commits(attempt)
        branch = self._engine.spec.repository.task_branch
        if commit == base:
            await self._succeed(attempt, {"state": DeliveryState.NOTHING, "branch": "", "commit": None})
            return
        await asyncio.to_thread(keep, self._engine.repo, commit, branch)
        crashpoints.hit(Point.AFTER_EFFECT)
        kept = {"state": "kept", "branch": branch, "commit": commit, "repository": str(self._engine.repo)}
        await self._succeed(attempt, kept)

    async def _hand_over(self, control: Control, attempt: AttemptId) -> None:
        request, made = await self._request(attempt)
        answer = await control.deliver(request, made.path if made else None)
        crashpoints.hit(Point.AFTER_EFFECT)
        answer = await self._wait(control, attempt, answer)
        if answer.state in _GOOD:
            await self._succeed(attempt, _result(answer))
        else:
            message = answer.message or f"The delivery ended as {answer.state}."
            await self._fail(attempt, answer.code or f"delivery_{answer.state}", message, branch=answer.branch)

    async def _request(self, attempt: AttemptId) -> tuple[DeliveryRequest, Bundle | None]:
        engine = self._engine
        base, commit = await self._commits(attempt)
        node = engine.node(attempt.node)
        wanted = node.delivery.change_request if node.delivery else None
        texts = {"title": wanted.title, "body": wanted.body} if wanted else {"title": "{{ task.title }}", "body": ""}
        rendered = await render(texts, context(engine.spec, engine.state, attempt.node))
        made: Bundle | None = None
        if commit != base:
            branch = engine.spec.repository.task_branch
            folder = engine.folder / "bundles"
            async with self._bundling:  # by way of the one task branch of ``repo``
                made = await asyncio.to_thread(bundle, engine.repo, folder, base=base, commit=commit, branch=branch)
        return DeliveryRequest(
            key=f"{engine.spec.task.id}:{attempt.node}:{attempt.generation}:push",
            node=attempt.node,
            generation=attempt.generation,
            round=engine.state.graph.round,
            base_commit=base,
            commit=commit,
            bundle_digest=made.digest if made else None,
            bundle_size=made.size if made else 0,
            title=rendered["title"],
            body=rendered["body"],
            draft=bool(wanted and wanted.draft),
            change_request=wanted is not None,
        ), made

    async def _wait(self, control: Control, attempt: AttemptId, answer: DeliveryAnswer) -> DeliveryAnswer:
        settled = self._settled[answer.id] = asyncio.Event()
        pause = FIRST_POLL
        try:
            await self._show(attempt, answer)
            while answer.state in _OPEN:
                try:
                    async with asyncio.timeout(pause):
                        await settled.wait()
                except TimeoutError:
                    pause = min(pause * 2, LONGEST_POLL)
                settled.clear()
                earlier, answer = answer, await control.delivery_status(answer.id)
                if answer.state != earlier.state:
                    await self._show(attempt, answer)
            return answer
        finally:
            del self._settled[answer.id]

    async def _show(self, attempt: AttemptId, answer: DeliveryAnswer) -> None:
        data = _result(answer) | {"code": answer.code, "message": answer.message}
        await self._tell(attempt, data)

    async def _tell(self, attempt: AttemptId, data: Mapping[str, Any]) -> None:
        event = NewEvent(
            kind=EventKind.DELIVERY_STATE,
            node=attempt.node,
            generation=attempt.generation,
            attempt=str(attempt),
            data=dict(data),
        )
        await self._engine.take(Progress(attempt=attempt, events=(event,)))

    async def _succeed(self, attempt: AttemptId, result: dict[str, Any]) -> None:
        row = self._engine.attempt(str(attempt))
        commit = row.base_commit or self._engine.spec.repository.base_commit
        tree = await asyncio.to_thread(tree_of, self._engine.repo, commit)
        if self._control is None:
            await self._tell(attempt, result)
        passed_on = digest({"tree": tree, "result": result, "artefacts": []})
        await self._engine.take(
            Succeeded(attempt=attempt, result_commit=commit, output_digest=passed_on, result=result)
        )

    async def _fail(self, attempt: AttemptId, code: str, message: str, **facts: object) -> None:
        failure = Failure(failure_class=FailureClass.CHECK_FAILED, code=code, message=message, facts=facts)
        await self._engine.take(Failed(attempt=attempt, failure=failure))


def _result(answer: DeliveryAnswer) -> dict[str, Any]:
    return {
        "delivery": answer.id,
        "state": answer.state,
        "branch": answer.branch,
        "commit": answer.commit,
        "change_request": answer.change_request,
    }
