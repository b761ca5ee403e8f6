"""Play a playbook's steps: tell, work in the tree, ask, and misbehave on order."""

import asyncio
import json
import os
import re
import shlex
from dataclasses import dataclass, field
from functools import singledispatchmethod
from pathlib import Path
from typing import Any, Protocol

from sandbox_supervisor.drivers.jsonrpc import INTERNAL_ERROR, Peer, RpcError
from sandbox_supervisor.drivers.scripted import moves
from sandbox_supervisor.protocol import playbook as verbs
from sandbox_supervisor.protocol.playbook import Step, Stream

_ANSWER = re.compile(r"\{\{\s*answers\[(-?\d{1,4})\]\s*\}\}")
_PIECE = 8 * 1024


class Speaker(Protocol):
    """The agent process as a player uses it. ``ignoring``: of cancel, SIGTERM and the end of input."""

    peer: Peer
    ignoring: bool

    async def write(self, data: bytes) -> None:
        """Write raw bytes to standard output."""


@dataclass(slots=True, kw_only=True)
class Player:
    """One session. The first prompt plays the whole book; later ones only the steps that ask for their text."""

    agent: Speaker
    session: str
    cwd: Path
    steps: tuple[Step, ...]
    generation: int
    attempt: int
    answers: list[str] = field(default_factory=list)
    _begun: bool = False
    _count: int = 0

    async def play(self, prompt: str) -> None:
        """Play every step that holds. Raises RpcError for a step that fails, with its number."""
        first, self._begun = not self._begun, True
        for number, step in enumerate(self.steps):
            if not first and step.when.prompt_contains is None:
                continue
            if step.when.holds(generation=self.generation, attempt=self.attempt, prompt=prompt):
                try:
                    await self.do(step.action)
                except (moves.Impossible, OSError) as error:
                    raise RpcError(INTERNAL_ERROR, f"step {number} ({step.action.verb}): {error}") from None

    def filled(self, text: str, *, quoted: bool = False) -> str:
        """Put answers into their places; quoted for a shell where the text is a command."""

        def answer(match: re.Match[str]) -> str:
            try:
                found = self.answers[int(match[1])]
            except IndexError:
                raise moves.Impossible(f"there is no {match[0]}: {len(self.answers)} answers were given") from None
            return shlex.quote(found) if quoted else found

        return _ANSWER.sub(answer, text)

    async def update(self, update_kind: str, **fields: Any) -> None:
        update = {"sessionUpdate": update_kind, **fields}
        await self.agent.peer.notify("session/update", {"sessionId": self.session, "update": update})

    def name(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._count}"

    @singledispatchmethod
    async def do(self, action: Any) -> None:
        """Carry out one action."""
        raise moves.Impossible(f"the verb {action.verb} is unknown")

    # --- telling -----------------------------------------------------------------------------------------------------

    @do.register
    async def _say(self, action: verbs.Say) -> None:
        await self._message(self.filled(action.text))

    @do.register
    async def _think(self, action: verbs.Think) -> None:
        await self.update("agent_thought_chunk", content={"type": "text", "text": self.filled(action.text)})

    @do.register
    async def _plan(self, action: verbs.Plan) -> None:
        entries = [{"content": e.content, "status": e.status, "priority": "medium"} for e in action.entries]
        await self.update("plan", entries=entries)

    @do.register
    async def _result(self, action: verbs.Result) -> None:
        text = json.dumps(action.value, ensure_ascii=False, indent=2)
        await self._message(f"```json\n{self.filled(text)}\n```")

    async def _message(self, text: str) -> None:
        name = self.name("message")
        for at in range(0, len(text), _PIECE):
            content = {"type": "text", "text": text[at : at + _PIECE]}
            await self.update("agent_message_chunk", messageId=name, content=content)

    # --- working -----------------------------------------------------------------------------------------------------

    @do.register
    async def _edit(self, action: verbs.Edit) -> None:
        call = self.name("call")
        await self.update("tool_call", toolCallId=call, title=f"Edit {action.path}", kind="edit", status="in_progress")
        try:
            old, new = moves.edit(self.cwd, action, self.filled(action.text))
        except (moves.Impossible, OSError):
            await self.update("tool_call_update", toolCallId=call, status="failed")
            raise
        diff = {"type": "diff", "path": action.path, "oldText": old, "newText": new}
        where = [{"path": str(self.cwd / action.path)}]
        await self.update("tool_call_update", toolCallId=call, status="completed", content=[diff], locations=where)

    @do.register
    async def _run(self, action: verbs.Run) -> None:
        command, call = self.filled(action.command, quoted=True), self.name("call")
        await self.update("tool_call", toolCallId=call, title=command, kind="execute", status="in_progress",
                          rawInput={"command": command})  # fmt: skip
        code, output = await moves.run(self.cwd, command)
        as_wanted = action.expect_exit is None or code == action.expect_exit
        content = [{"type": "content", "content": {"type": "text", "text": f"{output}\n[exit code {code}]"}}]
        status = "completed" if as_wanted else "failed"
        await self.update("tool_call_update", toolCallId=call, status=status, content=content)
        if not as_wanted:
            raise moves.Impossible(f"{command!r} ended with exit code {code}, not {action.expect_exit}")

    # --- asking ------------------------------------------------------------------------------------------------------

    @do.register
    async def _ask(self, action: verbs.Ask) -> None:
        form = action.schema or {
            "type": "object",
            "properties": {"answer": {"type": "string", "enum": list(action.options)}},
            "required": ["answer"],
        }
        message = self.filled(f"{action.title}\n\n{action.body}".strip())
        params = {"sessionId": self.session, "mode": "form", "message": message, "requestedSchema": form}
        answer = await self.agent.peer.request("elicitation/create", params)
        content = answer.get("content") if isinstance(answer, dict) else None
        if not isinstance(content, dict):
            self.answers.append(str(answer.get("action")) if isinstance(answer, dict) else "cancel")
        elif len(content) == 1 and isinstance(next(iter(content.values())), str):
            self.answers.append(next(iter(content.values())))
        else:
            self.answers.append(json.dumps(content, ensure_ascii=False))

    @do.register
    async def _permission(self, action: verbs.Permission) -> None:
        names = action.options or ("Allow", "Reject")
        options = [
            {"optionId": name, "name": name, "kind": "reject_once" if number else "allow_once"}
            for number, name in enumerate(names)
        ]
        call = {
            "toolCallId": self.name("call"),
            "title": self.filled(action.title),
            "kind": "other",
            "status": "pending",
        }
        params = {"sessionId": self.session, "toolCall": call, "options": options}
        answer = await self.agent.peer.request("session/request_permission", params)
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        self.answers.append(str((outcome or {}).get("optionId", "cancelled")))

    # --- time and misbehaviour ---------------------------------------------------------------------------------------

    @do.register
    async def _sleep(self, action: verbs.Sleep) -> None:
        await asyncio.sleep(action.seconds)

    @do.register
    async def _crash(self, action: verbs.Crash) -> None:
        os._exit(action.exit_code)

    @do.register
    async def _bad_json(self, action: verbs.BadJson) -> None:
        await self.agent.write(action.text.encode("utf-8", "surrogateescape") + b"\n")

    @do.register
    async def _ignore_cancel(self, action: verbs.IgnoreCancel) -> None:
        self.agent.ignoring = action.on

    @do.register
    async def _fork_daemon(self, action: verbs.ForkDaemon) -> None:
        await asyncio.to_thread(moves.fork_daemon, action.seconds)

    @do.register
    async def _flood(self, action: verbs.Flood) -> None:
        left = action.size
        name = self.name("message")
        while left > 0:
            size = min(left, _PIECE)
            left -= size
            if action.stream is Stream.MESSAGE:
                content = {"type": "text", "text": "~" * size}
                await self.update("agent_message_chunk", messageId=name, content=content)
            elif action.stream is Stream.STDOUT:
                await self.agent.write(b"~" * size)
            else:
                await asyncio.to_thread(moves.write_stderr, b"~" * (size - 1) + b"\n")
