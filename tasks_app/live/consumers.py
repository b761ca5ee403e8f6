"""``/ws/v1/tasks/{id}/console``: one browser socket, one upstream socket, nothing in between but credits.

The Origin has been checked by the router. Refusals come after the accept, because a browser cannot tell a refused
upgrade from a lost network.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import structlog
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.stream import SUBPROTOCOL, CloseCode, ErrorFrame, TaskFrame, read_client_frame
from tasks_app.errors import NotVisible
from tasks_app.live import admission
from tasks_app.live.dial import NoSandbox, Reclaimed, Upstream
from tasks_app.live.relay import Relay, Restless, SlowBrowser
from tasks_app.live.sockets import SOCKETS, TooManySockets
from tasks_app.nudges import task_group
from workspaces_app.access import Actor
from workspaces_app.errors import Forbidden, Unauthenticated

log = structlog.get_logger(__name__)
T = TypeVar("T")

ASK_AGAIN = 60.0  # seconds between two looks at whether the person may still watch

CODES: dict[type[Exception], tuple[CloseCode, str]] = {
    Unauthenticated: (CloseCode.UNAUTHENTICATED, "unauthenticated"),
    Forbidden: (CloseCode.FORBIDDEN, "forbidden"),
    NotVisible: (CloseCode.NOT_FOUND, "not_found"),
    Reclaimed: (CloseCode.RECLAIMED, "reclaimed"),
    NoSandbox: (CloseCode.NO_SANDBOX, "sandbox_gone"),
    SlowBrowser: (CloseCode.SLOW_CONSUMER, "slow_consumer"),
    TooManySockets: (CloseCode.TOO_MANY, "too_many_sockets"),
    Restless: (CloseCode.TOO_MANY, "too_many_subscribes"),
    Malformed: (CloseCode.PROTOCOL, "malformed"),
}


class Console(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    async def connect(self) -> None:
        self._task_id: str = self.scope["url_route"]["kwargs"]["task_id"]
        if SUBPROTOCOL not in self.scope["subprotocols"]:
            await self.close()
            return
        await self.accept(SUBPROTOCOL)
        self._relay = Relay(dial=self._dial, show=self.send)
        self._doubt = asyncio.Event()
        self._serving = asyncio.create_task(self._serve(), name=f"console.{self._task_id}")

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            await self._relay.hear(read_client_frame(text_data or bytes_data or b""))
        except (Malformed, Restless) as error:
            await self._end(error)

    async def disconnect(self, code: int) -> None:
        serving: asyncio.Task[None] | None = getattr(self, "_serving", None)
        if serving is not None:
            serving.cancel()
            await asyncio.wait({serving})
        if self.channel_layer is not None:
            await self.channel_layer.group_discard(self._group, self.channel_name)

    async def task_changed(self, message: dict[str, Any]) -> None:
        """Pass a hint of the channel layer on; it carries no data and may be lost. Also look again who is watching."""
        self._doubt.set()
        await self.send(codec.encode(TaskFrame()).decode())

    # --- the life of a socket ---

    async def _serve(self) -> None:
        try:
            actor = await self._admit()
            with SOCKETS.held(task=self._task_id, member=actor.label):
                await self._join()
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._relay.run(), name="console.relay")
                    group.create_task(self._ask_again(), name="console.admission")
                    group.create_task(self._watch(), name="console.patience")
        except* Exception as errors:  # noqa: BLE001 (the edge: whatever it is ends this socket, and only this one)
            await self._end(_root(errors))

    async def _join(self) -> None:
        if self.channel_layer is not None:
            await self.channel_layer.group_add(self._group, self.channel_name)

    async def _ask_again(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_AGAIN):
                    await self._doubt.wait()
            self._doubt.clear()
            await self._admit()
            self._relay.look_again()

    async def _watch(self) -> None:
        while True:
            pause = self._relay.watch()
            await asyncio.sleep(max(pause, 0.05))

    async def _admit(self) -> Actor:
        return await _in_database(admission.admit, self.scope["session"].session_key, self._task_id)

    async def _dial(self) -> Upstream:
        return await _in_database(admission.dial, self._task_id)

    async def _end(self, error: Exception) -> None:
        """Say why, then close with the code of the error."""
        code, word = next(
            (named for kind, named in CODES.items() if isinstance(error, kind)), (CloseCode.FAILED, "internal_error")
        )
        if code is CloseCode.FAILED:
            log.error("console_failed", task_id=self._task_id, exc_info=error)
        detail = str(error) if code is not CloseCode.FAILED else "The console failed; the log says why."
        with contextlib.suppress(RuntimeError):  # the browser may be gone already
            await self.send(codec.encode(ErrorFrame(code=word, detail=detail)).decode())
            await self.close(int(code), word)

    @property
    def _group(self) -> str:
        return task_group(self._task_id)


async def _in_database(call: Callable[..., T], *arguments: Any) -> T:
    answer: T = await database_sync_to_async(call)(*arguments)
    return answer


def _root(error: Exception) -> Exception:
    """Give the first error inside groups of errors."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
