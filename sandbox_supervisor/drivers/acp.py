"""Lead one agent through one session of the Agent Client Protocol, version 1, over its standard streams.

No client ``fs`` or ``terminal`` is offered: agents then use their own tools in the attempt's tree. What real agents do
beside the protocol is tolerated: permission requests and updates for tool calls never announced, usage in four places,
messages before the first prompt, no exit at the end of input, tools that outlive a cancel (the shim ends those).
"""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sandbox_supervisor.drivers import questions, results, signin
from sandbox_supervisor.drivers.jsonrpc import METHOD_NOT_FOUND, Broken, Ended, Peer, RpcError
from sandbox_supervisor.drivers.reports import AUTH_REQUIRED, Report, failed, of_error, of_exit, of_start, of_stop
from sandbox_supervisor.drivers.updates import Transcript, cut
from sandbox_supervisor.drivers.uplink import Uplink
from sandbox_supervisor.drivers.usage import Usage
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.states import FailureClass

PROTOCOL_VERSION = 1
HANDSHAKE = 120.0  # seconds for initialize and session/new: some agents fetch and compile first
DRAIN = 0.5  # seconds for what an agent that has exited left in its standard error
LAST_WORDS = 4096  # bytes kept of what an agent wrote beside the protocol, the end
_CHUNK = 64 * 1024
_WRITE_LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run and what to want from it."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    prompt: str
    result_file: str
    result_schema: dict[str, Any] | None = None
    permissions: str = "ask"
    exit_patience: float = 2.0  # seconds that an agent gets to exit after its input was closed
    meta: dict[str, Any] | None = None  # for the scripted agent


@dataclass(slots=True)
class Session:
    """``run`` lives through it; ``cancel``, ``close`` and ``message`` come from outside meanwhile."""

    job: Job
    up: Uplink
    transcript: Transcript = field(init=False)
    usage: Usage = field(default_factory=Usage)
    cancelled: bool = False
    _prompts: deque[str] = field(default_factory=deque)
    _process: asyncio.subprocess.Process | None = None
    _peer: Peer | None = None
    _id: str = ""
    _repaired: bool = False
    _methods: list[signin.Method] = field(default_factory=list)
    _wrote: bytes = b""

    def __post_init__(self) -> None:
        self.transcript = Transcript(root=self.job.cwd)

    async def run(self) -> Report:
        """Start the agent, play the session to its end, and say how it ended."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.job.argv, env=self.job.env, cwd=self.job.cwd, limit=_CHUNK,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return of_start(error)
        assert self._process.stdout is not None and self._process.stderr is not None  # noqa: S101, PT018  # pipes
        self._peer = Peer(
            self._process.stdout, self._write,
            on_request=self._requested, on_notification=self._notified, on_junk=self._junk,
        )  # fmt: skip
        reading = asyncio.create_task(self._peer.run(), name="agent:read")
        draining = asyncio.create_task(self._drain(self._process.stderr), name="agent:stderr")
        try:
            report = await self._lead(self._peer)
        finally:
            await self._shut()
            await asyncio.wait({draining}, timeout=DRAIN)
            for task in (reading, draining):
                task.cancel()
            await asyncio.gather(reading, draining, return_exceptions=True)
        report.quote(self._wrote)
        await self._ended(report)
        return report

    async def _lead(self, peer: Peer) -> Report:
        """Go from handshake to result; whatever goes wrong becomes the report."""
        try:
            await self._open(peer)
            return await self._converse(peer)
        except RpcError as error:
            return of_error(error, signin.needed(self._methods))
        except TimeoutError:
            return failed(FailureClass.PROTOCOL, "no_answer", f"The agent did not answer within {HANDSHAKE:g} s.")
        except Broken as broken:
            return failed(FailureClass.PROTOCOL, broken.code, f"The agent left the protocol: {broken.message}")
        except Ended:
            return of_exit(await self._exit_code(), begun=bool(self._id))

    # --- the agent's side --------------------------------------------------------------------------------------------

    async def _open(self, peer: Peer) -> None:
        """Initialise, authenticate if the agent insists, and open the session."""
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False,
                        "elicitation": {"form": {}}}  # fmt: skip
        me = {"name": "caisson", "title": "Caisson", "version": "1"}
        hello = await peer.request(
            "initialize",
            {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": capabilities, "clientInfo": me},
            HANDSHAKE,
        )
        peer.be_strict()
        hello = hello if isinstance(hello, dict) else {}
        if hello.get("protocolVersion") != PROTOCOL_VERSION:
            version = cut(hello.get("protocolVersion"), 40)
            raise Broken("version", f"it speaks version {version or 'none'}, not {PROTOCOL_VERSION}")
        opened = await self._new_session(peer, hello)
        if not isinstance(opened, dict) or not isinstance(opened.get("sessionId"), str):
            raise Broken("no_session", "it opened no session")
        self._id = opened["sessionId"]
        info = hello.get("agentInfo")
        agent = (
            {name: cut(info.get(name), 200) for name in ("name", "title", "version")} if isinstance(info, dict) else {}
        )
        await self.up.event(EventKind.SESSION_STARTED, {"agent": agent, "protocol_version": PROTOCOL_VERSION})

    async def _new_session(self, peer: Peer, hello: dict[str, Any]) -> Any:
        params: dict[str, Any] = {"cwd": self.job.cwd, "mcpServers": []}
        if self.job.meta is not None:
            params["_meta"] = self.job.meta
        self._methods = signin.offered(hello)
        try:
            return await peer.request("session/new", params, HANDSHAKE)
        except RpcError as error:
            if error.code != AUTH_REQUIRED:
                raise
            await self._sign_in(peer, error)
        return await peer.request("session/new", params, HANDSHAKE)

    async def _sign_in(self, peer: Peer, refusal: RpcError) -> None:
        """Go through the methods that need nobody until the agent accepts one; raises the last refusal."""
        for method in signin.usable(self._methods, self.job.env):
            try:
                await peer.request("authenticate", {"methodId": method.id}, HANDSHAKE)
            except RpcError as error:
                refusal = RpcError(AUTH_REQUIRED, error.message, error.data)
            else:
                return
        raise refusal

    async def _converse(self, peer: Peer) -> Report:
        """Prompt until there is nothing more to say and the result fits."""
        self._prompts.appendleft(self.job.prompt)
        while True:
            if self.cancelled:
                return of_stop("cancelled", cancelled=True)
            stop = await self._turn(peer, self._prompts.popleft())
            if self.cancelled or stop != "end_turn":
                return self._finished(of_stop(stop, cancelled=self.cancelled))
            if self._prompts:
                continue
            report = self._result(stop)
            if report is not None:
                return self._finished(report)

    async def _turn(self, peer: Peer, prompt: str) -> str:
        await self.up.event(EventKind.SESSION_PROMPT, {"text": cut(prompt, 64 * 1024)})
        self.transcript.turn(prompt)
        self.usage.turn()
        block = {"type": "text", "text": prompt}
        answer = await peer.request("session/prompt", {"sessionId": self._id, "prompt": [block]})
        answer = answer if isinstance(answer, dict) else {}
        if self.usage.answered(answer):
            await self.up.usage(self.usage.totals)
        stop = answer.get("stopReason")
        if not isinstance(stop, str):
            raise Broken("no_stop_reason", "it ended a turn without a stop reason")
        return stop

    def _result(self, stop: str) -> Report | None:
        """Give the report of a turn that ended well; None when the result is to be asked for once more."""
        said = results.last_object(self.transcript.final)
        written = results.from_file(self.job.result_file)
        schema = self.job.result_schema
        if schema is None:
            return Report(outcome="ok", stop_reason=stop, result=said if said is not None else written)
        found: list[str] = ["$: there is no JSON object in the last message"]
        for candidate in (said, written):
            if candidate is not None:
                found = results.problems(schema, candidate)
                if not found:
                    return Report(outcome="ok", stop_reason=stop, result=candidate)
        if not self._repaired:
            self._repaired = True
            self._prompts.append(results.repair_prompt(schema, found))
            return None
        message = "The agent gave no result that fits the declared schema, also when asked again: " + "; ".join(found)
        return failed(FailureClass.CHECK_FAILED, "result_invalid", message, stop_reason=stop, facts={"problems": found})

    def _finished(self, report: Report) -> Report:
        """Mark a session that said nothing and called no tool: unless it changed the tree, it is a failure."""
        report.quiet = report.outcome == "ok" and not (self.transcript.said or self.transcript.worked)
        return report

    # --- what the agent sends ----------------------------------------------------------------------------------------

    async def _notified(self, method: str, params: dict[str, Any]) -> None:
        update = params.get("update")
        if method != "session/update" or not isinstance(update, dict):
            return
        if self.usage.updated(update):
            await self.up.usage(self.usage.totals)
        for kind, data in self.transcript.take(update):
            await self.up.event(kind, data)

    async def _requested(self, method: str, params: dict[str, Any]) -> Any:
        if method == "session/request_permission":
            return await self._permit(params)
        if method == "elicitation/create":
            form = questions.elicitation(params)
            return questions.elicitation_outcome(form, await self.up.ask(form)) if form else {"action": "decline"}
        raise RpcError(METHOD_NOT_FOUND, f"this client does not offer {method[:100]}")

    async def _permit(self, params: dict[str, Any]) -> dict[str, Any]:
        announced = self.transcript.announce(params.get("toolCall"))
        for kind, data in announced:
            await self.up.event(kind, data)
        question = questions.permission(params, self.job.cwd)
        answer = questions.by_policy(question, self.job.permissions) or await self.up.ask(question)
        outcome = questions.permission_outcome(question, answer)
        if not questions.allows(question, outcome):
            for kind, data in announced:  # an agent that did not tell of it will not tell that it was refused
                await self.up.event(kind, {"id": data["id"], "status": "failed"})
        return outcome

    async def _junk(self, line: bytes) -> None:
        self._note(line + b"\n")
        await self.up.output("stdout", line + b"\n")

    async def _drain(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(_CHUNK):
            self._note(data)
            await self.up.output("stderr", data)

    def _note(self, data: bytes) -> None:
        self._wrote = (self._wrote + data)[-LAST_WORDS:]

    # --- from outside ------------------------------------------------------------------------------------------------

    async def cancel(self) -> None:
        """Ask the agent to stop; its open questions are answered with ``cancelled``."""
        self.cancelled = True
        self.up.cancel_questions()
        if self._peer is not None and self._id:
            with suppress(Ended, Broken):
                await self._peer.notify("session/cancel", {"sessionId": self._id})

    def close(self) -> None:
        """Close the agent's input: the next hint after a cancel that was not heard."""
        self.cancelled = True
        self._close_input()

    def message(self, text: str) -> None:
        """Prompt once more after this turn."""
        self._prompts.append(text)

    # --- the process -------------------------------------------------------------------------------------------------

    async def _write(self, data: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None  # noqa: S101, PT018  # a pipe
        stdin = self._process.stdin
        if stdin.is_closing():
            raise ConnectionResetError("the agent's input is closed")
        if stdin.transport.get_write_buffer_size() > _WRITE_LIMIT:
            raise ConnectionResetError("the agent does not read its input")
        stdin.write(data)
        await stdin.drain()

    async def _shut(self) -> None:
        """Close the agent's input and let it go in peace for a moment; the shim ends what stays."""
        self._close_input()
        if self._process is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.job.exit_patience):
                    await self._process.wait()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def _exit_code(self) -> int | None:
        if self._process is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(self.job.exit_patience):
                await self._process.wait()
        return self._process.returncode

    async def _ended(self, report: Report) -> None:
        code = self._process.returncode if self._process is not None else None
        data = {"stop_reason": report.stop_reason, "exit_code": code if code is None or code >= 0 else None,
                "signal": -code if code is not None and code < 0 else None}  # fmt: skip
        await self.up.event(EventKind.SESSION_ENDED, data)
