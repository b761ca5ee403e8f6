"""The agent's side of the protocol: sessions, prompts, cancel. What each verb does stands in ``player``."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox_supervisor.drivers.jsonrpc import METHOD_NOT_FOUND, Broken, Peer, RpcError
from sandbox_supervisor.drivers.scripted import PLAY
from sandbox_supervisor.drivers.scripted.player import Player
from sandbox_supervisor.protocol.playbook_reader import read_playbook

INVALID = -32602
_CHUNK = 64 * 1024


def main(argv: list[str]) -> int:
    """Play what ``session/new`` brings along in ``_meta``, or the file named by ``--playbook``."""
    parser = argparse.ArgumentParser(prog="sandbox_supervisor scripted-agent")
    parser.add_argument("--playbook", type=Path, help="YAML or JSON; used when the client brings none")
    arguments = parser.parse_args(argv)
    return asyncio.run(_serve(_file(arguments.playbook) if arguments.playbook else None))


def _file(path: Path) -> Any:
    import yaml

    return yaml.safe_load(path.read_text("utf-8"))


async def _serve(playbook: Any) -> int:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_CHUNK)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    agent = Agent(playbook)
    agent.peer = Peer(reader, agent.write, on_request=agent.requested, on_notification=agent.notified)
    loop.add_signal_handler(signal.SIGTERM, agent.terminated)
    with suppress(Broken):
        await agent.peer.run()
    await agent.input_ended()
    return 0


class Agent:
    """Serves one session after the other, one prompt at a time."""

    def __init__(self, playbook: Any) -> None:
        self.peer: Peer
        self.ignoring = False  # of cancel, SIGTERM and the end of input
        self._playbook = playbook
        self._output = asyncio.Lock()
        self._sessions: dict[str, Player] = {}
        self._playing: asyncio.Task[Any] | None = None

    async def write(self, data: bytes) -> None:
        """Write to standard output, waiting as long as nobody reads."""
        async with self._output:
            await asyncio.to_thread(_write_all, data)

    async def requested(self, method: str, params: dict[str, Any]) -> Any:
        handlers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "initialize": self._initialize,
            "session/new": self._open,
            "session/prompt": self._prompt,
        }
        if method not in handlers:
            raise RpcError(METHOD_NOT_FOUND, f"the scripted agent does not offer {method}")
        return await handlers[method](params)

    async def notified(self, method: str, _params: dict[str, Any]) -> None:
        if method == "session/cancel":
            self._stop()

    def terminated(self) -> None:
        """Obey SIGTERM, unless the playbook said otherwise."""
        if not self.ignoring:
            os._exit(128 + signal.SIGTERM)

    async def input_ended(self) -> None:
        """End with the client's stream, unless the playbook said otherwise."""
        if self.ignoring and self._playing is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._playing)
        self._stop()

    def _stop(self) -> None:
        if self._playing is not None and not self.ignoring:
            self._playing.cancel()

    async def _initialize(self, _params: dict[str, Any]) -> dict[str, Any]:
        me = {"name": "caisson-scripted", "title": "Scripted agent (no model)", "version": "1"}
        return {"protocolVersion": 1, "agentInfo": me, "agentCapabilities": {"loadSession": False}, "authMethods": []}

    async def _open(self, params: dict[str, Any]) -> dict[str, Any]:
        meta = params.get("_meta")
        brought = meta.get(PLAY) if isinstance(meta, dict) else None
        play = brought if isinstance(brought, dict) else {"playbook": self._playbook}
        steps, problems = read_playbook(play.get("playbook"))
        if problems:
            raise RpcError(INVALID, "the playbook is not valid: " + "; ".join(map(_problem, problems)))
        session = f"scripted-{len(self._sessions) + 1}"
        generation, attempt = (int(play.get(name, 1)) for name in ("generation", "attempt"))
        cwd = Path(str(params.get("cwd")))
        self._sessions[session] = Player(
            agent=self, session=session, cwd=cwd, steps=steps, generation=generation, attempt=attempt
        )
        return {"sessionId": session}

    async def _prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        player = self._sessions.get(str(params.get("sessionId")))
        if player is None:
            raise RpcError(INVALID, "there is no such session")
        blocks = params.get("prompt")
        texts = (
            [block.get("text", "") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
        )
        self._playing = asyncio.ensure_future(player.play("\n".join(map(str, texts))))
        try:
            await self._playing
        except asyncio.CancelledError:
            return {"stopReason": "cancelled"}
        return {"stopReason": "end_turn"}


def _problem(problem: Any) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem.path)
    return f"playbook{place}: {problem.message}" + (f" ({problem.hint})" if problem.hint else "")


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
