"""JSON-RPC 2.0 over lines of JSON, for both ends, bounded in memory whatever the other end sends.

Written here rather than taken from the ``agent-client-protocol`` package, because that one joins the chunks of a line
without an upper bound (one endless line grows the process until it is killed), opens a standard error that nobody
drains, ends only the direct child, and takes 0.7 s and 60 MiB to import: once per attempt. The tests speak to an agent
written with that package, so the two agree on the wire.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

LINE_LIMIT = 16 * 1024 * 1024
OPEN_LIMIT = 64  # requests of the other end that may wait for an answer at once
JUNK_LIMIT = 20  # lines that are no JSON, tolerated before the first answer
METHOD_NOT_FOUND, INTERNAL_ERROR, TOO_MANY = -32601, -32603, -32000
_CHUNK = 64 * 1024


class Broken(Exception):  # what happened to the protocol
    """The other end left the protocol. ``code`` is a stable word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Ended(Exception):
    """The other end closed its stream before it answered."""


class RpcError(Exception):
    """The other end answered with an error, or a handler wants to."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


Request = Callable[[str, dict[str, Any]], Awaitable[Any]]
Notification = Callable[[str, dict[str, Any]], Awaitable[None]]


async def lines(reader: asyncio.StreamReader, limit: int = LINE_LIMIT) -> AsyncIterator[bytes]:
    """Give lines without their ends; the last one may lack it. Raises Broken for one longer than ``limit``."""
    buffer = bytearray()
    looked = 0
    while chunk := await reader.read(_CHUNK):
        buffer += chunk
        while (end := buffer.find(b"\n", looked)) >= 0:
            yield bytes(buffer[:end])
            del buffer[: end + 1]
            looked = 0
        looked = len(buffer)
        if looked > limit:
            raise Broken("line_too_long", f"a line is longer than {limit} bytes")
    if buffer:
        yield bytes(buffer)


def parse(line: bytes) -> dict[str, Any] | None:
    """Read one message; None if it is not a JSON object. Bytes that are no UTF-8, and halves of surrogate pairs (real
    agents cut texts in their middle), become replacement characters."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        try:
            value = json.loads(line.decode("utf-8", "replace"))
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


class Peer:
    """One end. ``run`` reads until the stream ends; requests of the other end are answered while it reads on."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        write: Callable[[bytes], Awaitable[None]],
        *,
        on_request: Request,
        on_notification: Notification,
        on_junk: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        self._reader = reader
        self._write = write
        self._on_request = on_request
        self._on_notification = on_notification
        self._on_junk = on_junk
        self._junk = 0
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._ended: Exception | None = None

    async def request(self, method: str, params: dict[str, Any], timeout: float | None = None) -> Any:
        """Ask and wait for the answer. Raises RpcError, Ended, Broken, TimeoutError."""
        if self._ended is not None:
            raise self._ended
        self._number += 1
        number = self._number
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(timeout):
                await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
                return await future
        finally:
            del self._waiting[number]

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            await self._write(msgspec.json.encode(message) + b"\n")
        except (ConnectionError, OSError):
            raise self._ended or Ended("the other end has closed its stream") from None

    async def run(self) -> None:
        """Read until the end of the stream. Raises Broken; every open request then fails the same way."""
        try:
            async for line in lines(self._reader):
                if line.strip():
                    await self._take(line)
        except Broken as broken:
            self._end(broken)
            raise
        finally:
            self._end(Ended("the other end has closed its stream"))
            for task in self._answers:
                task.cancel()

    def _end(self, error: Exception) -> None:
        self._ended = self._ended or error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._ended)

    async def _take(self, line: bytes) -> None:
        message = parse(line)
        if message is None:
            await self._tolerate(line)
            return
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        fields = params if isinstance(params, dict) else {}
        if isinstance(method, str) and number is None:
            await self._on_notification(method, fields)
        elif isinstance(method, str):
            await self._answer(method, fields, number)
        elif isinstance(number, int):
            self._settle(number, message)

    async def _tolerate(self, line: bytes) -> None:
        """Let wrappers print a banner before the first answer; after that the stream is the protocol's alone."""
        self._junk += 1
        if self._on_junk is None or self._junk > JUNK_LIMIT or line.lstrip()[:1] == b"{":
            raise Broken("bad_json", f"a line is not JSON: {line[:200].decode('utf-8', 'replace')!r}")
        await self._on_junk(line[:1000])

    def be_strict(self) -> None:
        """Tolerate no line any more that is not JSON."""
        self._on_junk = None

    def _settle(self, number: int, message: dict[str, Any]) -> None:
        future = self._waiting.get(number)
        if future is None or future.done():
            return
        error = message.get("error")
        if isinstance(error, dict):
            code = error.get("code")
            text = str(error.get("message"))[:4000]
            future.set_exception(RpcError(code if isinstance(code, int) else 0, text, error.get("data")))
        else:
            future.set_result(message.get("result"))

    async def _answer(self, method: str, params: dict[str, Any], number: Any) -> None:
        if len(self._answers) >= OPEN_LIMIT:
            await self._reply(number, error=RpcError(TOO_MANY, "too many open requests"))
            return
        task = asyncio.create_task(self._handle(method, params, number), name=f"answer:{method}")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _handle(self, method: str, params: dict[str, Any], number: Any) -> None:
        try:
            await self._reply(number, result=await self._on_request(method, params))
        except RpcError as error:
            await self._reply(number, error=error)
        except Exception as error:  # noqa: BLE001  # whoever asked gets an answer, whatever went wrong here
            await self._reply(number, error=RpcError(INTERNAL_ERROR, f"{type(error).__name__}: {error}"))

    async def _reply(self, number: Any, *, result: Any = None, error: RpcError | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        if error is not None:
            message["error"] = {"code": error.code, "message": error.message}
        else:
            message["result"] = result
        with suppress(Ended, Broken):
            await self._send(message)
