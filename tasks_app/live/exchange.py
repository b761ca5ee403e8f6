"""One HTTP/1.1 exchange over a fresh pinned connection, with one deadline and one size for all of it."""

import socket
import ssl
import time
from dataclasses import dataclass

import h11

from tasks_app.live import pin
from tasks_app.live.errors import TooLarge, Unreachable

CHUNK = 64 * 1024
CONNECT = 5.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    host: str
    port: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """An answer, read whole. Redirects are answers like any other: nobody follows them."""

    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


def exchange(peer: Peer, request: h11.Request, body: bytes, bounds: Bounds) -> Fetched:
    """Connect, check the certificate, and only then send. Raises Unreachable, WrongInstance, TooLarge."""
    deadline = time.monotonic() + bounds.seconds
    try:
        with _connect(peer, min(CONNECT, bounds.seconds)) as wire:
            return _Exchange(wire, deadline, bounds.bytes).run(request, body)
    except (OSError, EOFError, h11.ProtocolError) as error:
        raise Unreachable(
            "The supervisor of this sandbox does not answer.", cause=f"{type(error).__name__}: {error}"
        ) from error


def _connect(peer: Peer, timeout: float) -> ssl.SSLSocket:
    plain = socket.create_connection((peer.host, peer.port), timeout=timeout)
    try:
        wire = pin.context().wrap_socket(plain)
    except BaseException:
        plain.close()
        raise
    try:
        pin.check(wire.getpeercert(binary_form=True), peer.fingerprint)
    except BaseException:
        wire.close()
        raise
    return wire


class _Exchange:
    def __init__(self, wire: ssl.SSLSocket, deadline: float, limit: int) -> None:
        self._wire = wire
        self._deadline = deadline
        self._limit = limit
        self._http = h11.Connection(h11.CLIENT)

    def run(self, request: h11.Request, body: bytes) -> Fetched:
        head = self._http.send(request) or b""
        content = self._http.send(h11.Data(data=body)) or b""
        end = self._http.send(h11.EndOfMessage()) or b""
        self._wire.settimeout(self._left())
        self._wire.sendall(head + content + end)
        return self._answer()

    def _answer(self) -> Fetched:
        while isinstance(event := self._next(), h11.InformationalResponse):
            pass
        match event:
            case h11.Response(status_code=status, headers=headers):
                named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
                return Fetched(status=status, headers=named, body=self._body())
            case _:
                raise EOFError("the connection ended before an answer")

    def _body(self) -> bytes:
        body = bytearray()
        while True:
            match self._next():
                case h11.Data(data=data) if len(body) + len(data) <= self._limit:
                    body += data
                case h11.Data():
                    raise TooLarge(f"The answer has more than {self._limit} bytes.", limit=self._limit)
                case h11.EndOfMessage():
                    return bytes(body)
                case _:
                    raise EOFError("the answer was cut")

    def _next(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._wire.settimeout(self._left())
            self._http.receive_data(self._wire.recv(CHUNK))
        return event

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no whole answer in time")
        return left
