"""``WS /v1/stream``: a conversation with one subscriber. Errors are frames after the accept, then a close."""

import asyncio
from typing import Any, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.stream import (
    Ack,
    CloseCode,
    ErrorFrame,
    Subscribe,
    read_client_frame,
)
from sandbox_supervisor.server.facade import Gone, Supervisor
from sandbox_supervisor.server.subscription import SlowConsumer, Subscription
from sandbox_supervisor.server.tempo import Tempo

E = TypeVar("E", bound=Exception)

MOST_STREAMS = 64
FAREWELL = 2.0  # seconds for the last frame and the close of a client that may not be reading


class Refusal(Exception):
    def __init__(self, close: CloseCode, code: str, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.close = close
        self.frame = ErrorFrame(code=code, detail=detail, facts=facts)


class Streams:
    """All open subscribers of a supervisor."""

    def __init__(self, supervisor: Supervisor, tempo: Tempo) -> None:
        self._supervisor = supervisor
        self._tempo = tempo
        self.open = 0

    async def serve(self, socket: WebSocket) -> None:
        await socket.accept()
        if self.open >= MOST_STREAMS:
            refusal = Refusal(CloseCode.TOO_MANY, "too_many_streams", f"at most {MOST_STREAMS} at once")
            await _refuse(socket, refusal)
            return
        self.open += 1
        try:
            await self._serve(socket)
        finally:
            self.open -= 1

    async def _serve(self, socket: WebSocket) -> None:
        try:
            await Conversation(self._supervisor, socket, self._tempo).run()
        except* WebSocketDisconnect:
            pass
        except* Refusal as refused:
            await _refuse(socket, _first(refused))
        except* SlowConsumer as slow:
            acked = _first(slow).acked
            detail = f"no ack for {self._tempo.patience:.0f} s"
            await _refuse(socket, Refusal(CloseCode.SLOW_CONSUMER, "slow_consumer", detail, acked=acked))
        except* Gone as gone:
            await _refuse(socket, Refusal(CloseCode.NO_SANDBOX, "gone", str(_first(gone))))


class Conversation:
    """Receives subscribes and acks; each subscribe replaces the subscription before it."""

    def __init__(self, supervisor: Supervisor, socket: WebSocket, tempo: Tempo) -> None:
        self._supervisor = supervisor
        self._socket = socket
        self._tempo = tempo
        self._subscription: Subscription | None = None
        self._sender: asyncio.Task[None] | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            await self._take(group, await self._first_frame())
            while True:
                await self._take(group, await self._receive())

    async def _first_frame(self) -> Subscribe | Ack:
        try:
            async with asyncio.timeout(self._tempo.patience):
                return await self._receive()
        except TimeoutError:
            raise Refusal(CloseCode.PROTOCOL, "no_subscribe", "no subscribe came") from None

    async def _receive(self) -> Subscribe | Ack:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        try:
            return read_client_frame(message.get("text") or message.get("bytes") or b"")
        except Malformed as error:
            raise Refusal(CloseCode.PROTOCOL, "malformed", str(error)) from None

    async def _take(self, group: asyncio.TaskGroup, frame: Subscribe | Ack) -> None:
        match frame:
            case Subscribe():
                await self._replace(group, frame)
            case Ack() if self._subscription is None:
                raise Refusal(CloseCode.PROTOCOL, "no_subscribe", "an ack before the first subscribe")
            case Ack():
                _acknowledge(self._subscription, frame)

    async def _replace(self, group: asyncio.TaskGroup, wish: Subscribe) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait({self._sender})
        self._subscription = Subscription(self._supervisor, wish, self._send, self._tempo)
        self._sender = group.create_task(self._subscription.run(), name="stream.sender")

    async def _send(self, data: bytes) -> None:
        await self._socket.send_text(data.decode())


def _acknowledge(subscription: Subscription, ack: Ack) -> None:
    try:
        subscription.ack(ack)
    except Malformed as error:
        raise Refusal(CloseCode.PROTOCOL, "malformed", str(error)) from None


def _first(group: ExceptionGroup[E]) -> E:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, ExceptionGroup) else found


async def _refuse(socket: WebSocket, refusal: Refusal) -> None:
    try:
        async with asyncio.timeout(FAREWELL):
            if socket.application_state is WebSocketState.CONNECTED:
                await socket.send_text(codec.encode(refusal.frame).decode())
                await socket.close(int(refusal.close), refusal.frame.code)
    except (TimeoutError, RuntimeError, WebSocketDisconnect):
        return
