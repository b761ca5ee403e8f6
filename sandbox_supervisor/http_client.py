"""One keep-alive HTTP/1.1 connection to the control plane, over a Unix socket or TLS; small like its user."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import h11

ANSWER_LIMIT = 1024 * 1024  # bytes; an answer of the control plane is small
READ = 64 * 1024
UNIX_PATH_LIMIT = 100  # bytes of a socket path that the kernel takes as it is
CONNECT = 5.0  # seconds


class Unreachable(Exception):
    """No answer: refused, cut, too slow, or not HTTP. Whether the request had an effect is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to connect: ``socket`` wins over host and port; ``tls`` needs a host that the certificate names."""

    host: str
    port: int
    tls: bool
    socket: Path | None = None

    @classmethod
    def parse(cls, url: str, socket: str | None) -> Self:
        """Read a base URL. Raises ValueError for cleartext over a network, and for anything but a bare origin."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.path not in {"", "/"}:
            raise ValueError("the control plane's address is http(s)://host[:port]")
        tls = parts.scheme == "https"
        if not tls and socket is None:
            raise ValueError("the control plane is reached by https, or by http over a Unix socket")
        port = parts.port or (443 if tls else 80)
        return cls(host=parts.hostname, port=port, tls=tls, socket=Path(socket) if socket else None)


class HttpClient:
    """Sends one request at a time; connects when needed, and again after anything went wrong."""

    def __init__(self, address: Address, *, token: str, trust: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._token = token
        self._trust = trust
        self._lock = asyncio.Lock()
        self._wire: _Wire | None = None

    async def request(self, method: str, target: str, body: bytes = b"", *, kind: str, timeout: float) -> Answer:
        """Send and read the whole answer within ``timeout`` seconds. Raises Unreachable."""
        headers = [
            ("Host", self._address.host),
            ("Authorization", f"Bearer {self._token}"),
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Accept", "application/json"),
        ]
        request = h11.Request(method=method, target=target, headers=headers)
        async with self._lock:
            try:
                async with asyncio.timeout(timeout):
                    return await self._exchange(request, body)
            except (OSError, TimeoutError, EOFError, h11.ProtocolError, ssl.SSLError) as error:
                self._drop()
                raise Unreachable(f"{type(error).__name__}: {error}") from error
            except BaseException:
                self._drop()
                raise

    async def _exchange(self, request: h11.Request, body: bytes) -> Answer:
        if self._wire is None or self._wire.stale():
            self._drop()
            self._wire = await _open(self._address, self._trust)
        answer = await self._wire.exchange(request, body)
        if not self._wire.reusable():
            self._drop()
        return answer

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    async def close(self) -> None:
        self._drop()


class _Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)

    def stale(self) -> bool:
        """Whether the other side has closed it meanwhile."""
        return self._reader.at_eof() or self._writer.is_closing()

    def reusable(self) -> bool:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        return False

    async def exchange(self, request: h11.Request, body: bytes) -> Answer:
        self._writer.write(self._http.send(request) or b"")
        self._writer.write(self._http.send(h11.Data(data=body)) or b"")
        self._writer.write(self._http.send(h11.EndOfMessage()) or b"")
        await self._writer.drain()
        while isinstance(head := await self._next(), h11.InformationalResponse):
            pass
        match head:
            case h11.Response(status_code=status, headers=headers):
                named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
                return Answer(status=status, headers=named, body=await self._body())
            case _:
                raise EOFError("the connection ended before an answer")

    async def _body(self) -> bytes:
        body = bytearray()
        while True:
            match await self._next():
                case h11.Data(data=data) if len(body) + len(data) <= ANSWER_LIMIT:
                    body += data
                case h11.Data():
                    raise EOFError(f"the answer has more than {ANSWER_LIMIT} bytes")
                case h11.EndOfMessage():
                    return bytes(body)
                case _:
                    raise EOFError("the answer was cut")

    async def _next(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(READ))
        return event

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._writer.transport.abort()


async def _open(address: Address, trust: ssl.SSLContext | None) -> _Wire:
    async with asyncio.timeout(CONNECT):
        tls = (trust or _default_trust()) if address.tls else None
        if address.socket is None:
            return _Wire(*await asyncio.open_connection(address.host, address.port, ssl=tls))
        with _short(address.socket) as path:
            name = address.host if tls else None
            return _Wire(*await asyncio.open_unix_connection(path, ssl=tls, server_hostname=name))


def _default_trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give a name of the socket that fits into an address, whatever the length of its path."""
    if len(os.fsencode(path)) <= UNIX_PATH_LIMIT:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
