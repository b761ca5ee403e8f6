"""What the server and the control client may ask of the running supervisor."""

import asyncio
from collections.abc import Callable
from typing import Any

from sandbox_supervisor import git
from sandbox_supervisor.attempts.confined import problems
from sandbox_supervisor.engine.core import Engine
from sandbox_supervisor.engine.deliveries import Deliveries
from sandbox_supervisor.engine.departures import Departures
from sandbox_supervisor.engine.reports import Reports
from sandbox_supervisor.engine.runners import Runners
from sandbox_supervisor.engine.views import snapshot
from sandbox_supervisor.graph.rows import AttemptRow
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import Envelope
from sandbox_supervisor.protocol.messages import (
    Command,
    CommandOutcome,
    CommandVerb,
    Desired,
    Head,
    Heartbeat,
    HeartbeatAnswer,
    OutcomeCode,
    Snapshot,
)
from sandbox_supervisor.runner.link import RunnerLink, RunnerLost, RunnerRefused
from sandbox_supervisor.server.facade import Gone, LogSlice, NotFound

COMMAND_PATIENCE = 15.0  # seconds; a commit takes milliseconds, unless the disk is full
DIFF_LIMIT = 8 * 1024 * 1024


class Facade:
    """Implements ``server.facade.Supervisor`` over the engine."""

    def __init__(
        self,
        engine: Engine,
        *,
        runners: Runners,
        reports: Reports,
        deliveries: Deliveries,
        departures: Departures,
        on_heard: Callable[[], None],
    ) -> None:
        self.epoch = engine.log.epoch
        self._engine = engine
        self._runners = runners
        self._reports = reports
        self._deliveries = deliveries
        self._departures = departures
        self._on_heard = on_heard

    # --- the log -----------------------------------------------------------------------------------------------------

    def head(self) -> Head:
        return self._engine.log.head()

    async def snapshot(self) -> Snapshot:
        state, seq = await self._engine.log.read()
        return snapshot(self._engine, state, seq)

    async def events(self, after: int, limit: int) -> list[Envelope]:
        return await self._engine.log.events(after, limit)

    async def wait_past(self, seq: int, timeout: float) -> bool:
        return await self._engine.log.wait_past(seq, timeout)

    # --- commands ----------------------------------------------------------------------------------------------------

    async def submit(self, command: Command) -> CommandOutcome:
        if damage := self._engine.log.damage:
            message = f"The log of this sandbox is damaged ({damage}): it can be read, but takes no commands."
            return CommandOutcome(code=OutcomeCode.REFUSED, reason="storage_corrupt", message=message)
        if codec.is_deep(command.answer):
            message = f"The answer is nested more than {codec.DEEPEST} deep."
            return CommandOutcome(code=OutcomeCode.INVALID, reason="answer_invalid", message=message)
        if command.verb is CommandVerb.ANSWER and (unfit := await self._unfit(command)):
            return unfit
        try:
            async with asyncio.timeout(COMMAND_PATIENCE):
                return await self._engine.command(command)
        except TimeoutError:
            message = "There is no space to write the command down; send it again, under the same id, once there is."
            return CommandOutcome(code=OutcomeCode.REFUSED, reason="storage_full", message=message)

    async def _unfit(self, command: Command) -> CommandOutcome | None:
        """Hold an answer against the schema of its request."""
        request = self._engine.state.requests.get(command.request or "")
        content = command.answer.get("content") if isinstance(command.answer, dict) else None
        if request is None or not request.schema or content is None:
            return None
        if not (found := await problems(request.schema, content)):
            return None
        message = f"The answer does not fit the schema of the question: {'; '.join(found[:3])}"
        return CommandOutcome(
            code=OutcomeCode.INVALID, reason="answer_invalid", message=message, facts={"problems": found}
        )

    # --- what an attempt left ----------------------------------------------------------------------------------------

    async def attempt_log(self, attempt: str, stream: str, offset: int, length: int) -> LogSlice:
        self._row(attempt)
        try:
            part = await asyncio.to_thread(self._engine.log.outputs.read, attempt, stream, offset, length)
        except FileNotFoundError:
            raise NotFound(f"Attempt {attempt} has no output {stream[:20]}.") from None
        return LogSlice(data=part.data, offset=part.offset, size=part.size, dropped=part.dropped, head=part.head)

    async def attempt_files(self, attempt: str, path: str) -> list[dict[str, Any]]:
        self._row(attempt)
        try:
            return await self._link().list_files(attempt, path)
        except (RunnerRefused, RunnerLost) as error:
            raise _unavailable(error) from None

    async def attempt_file(self, attempt: str, path: str, offset: int, length: int) -> tuple[bytes, int]:
        self._row(attempt)
        try:
            return await self._link().read_file(attempt, path, offset, length)
        except (RunnerRefused, RunnerLost) as error:
            raise _unavailable(error) from None

    async def attempt_diff(self, attempt: str) -> bytes:
        """Show what the attempt changed: from ``repo`` once it has a commit of its own, else from its tree."""
        row = self._row(attempt)
        if row.base_commit is None:
            raise NotFound(f"Attempt {attempt} has no tree.")
        commit = row.result_commit if row.result_commit != row.base_commit else row.wip_commit
        try:
            if commit:
                return await self._committed_diff(row.base_commit, commit)
            return await self._link().diff(attempt, row.base_commit)
        except (RunnerRefused, RunnerLost) as error:
            raise _unavailable(error) from None

    async def artefact(self, digest: str, offset: int, length: int) -> tuple[bytes, int]:
        try:
            return await asyncio.to_thread(self._engine.log.artefacts.read, digest, offset, length)
        except FileNotFoundError:
            raise NotFound(f"There is no artefact {digest[:80]}.") from None

    async def _committed_diff(self, base: str, commit: str) -> bytes:
        options = ("--no-ext-diff", "--no-textconv", "--no-color", "--full-index", "--no-renames")
        try:
            return (await git.call(self._engine.repo, "diff", *options, base, commit, limit=DIFF_LIMIT)).stdout
        except git.GitFailed as failed:
            if failed.code == "too_big":
                raise Gone(f"The difference is larger than {DIFF_LIMIT} bytes; read the files instead.") from None
            raise Gone(failed.message) from None

    def _row(self, attempt: str) -> AttemptRow:
        row = self._engine.state.attempts.get(attempt)
        if row is None:
            raise NotFound(f"There is no attempt {attempt[:100]}.")
        return row

    def _link(self) -> RunnerLink:
        return self._runners.link()

    # --- the control plane -------------------------------------------------------------------------------------------

    def readiness(self) -> dict[str, str]:
        return self._reports.readiness()

    async def heartbeat(self, beat: int) -> Heartbeat:
        return self._reports.heartbeat(beat)

    async def hear(self, answer: HeartbeatAnswer) -> None:
        for delivery in answer.deliveries:
            self._deliveries.settled(delivery)
        if answer.archive_wanted:
            self._departures.want_archive()
        await self._reports.hear(answer)
        if answer.desired is not Desired.STOP:
            self._on_heard()

    async def wait_urgent(self, timeout: float) -> None:
        await self._reports.wait_urgent(timeout)


def _unavailable(error: RunnerRefused | RunnerLost) -> NotFound | Gone:
    if isinstance(error, RunnerLost):
        return Gone("No runner is connected; only it can read the attempt's tree.")
    return NotFound(error.message)
