"""Run the server on a listening socket that the launcher bound, until cancelled.

``uvicorn.Server.serve`` is not used: it would take the process' signals and wake up ten times a second.
"""

import asyncio
import contextlib
import socket

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox_supervisor.protocol.stream import MESSAGE_LIMIT
from sandbox_supervisor.server.app import ServerIdentity, build
from sandbox_supervisor.server.facade import Supervisor
from sandbox_supervisor.server.tempo import Tempo
from sandbox_supervisor.server.tls import server_context

__all__ = ["ServerIdentity", "serve"]

STANDARD = Tempo()
HEADER_LIMIT = 32 * 1024
CONNECTIONS = 256  # agents share the loopback with this server


async def _close(server: uvicorn.Server, listener: socket.socket) -> None:
    """Close in order what lets itself be closed in order, then the rest."""
    with contextlib.suppress(AssertionError):  # from a WebSocket that is half through its handshake
        await server.shutdown(sockets=[listener])
    for connection in list(server.server_state.connections):
        connection.transport.abort()


def _impatient(silence: float) -> type[H11Protocol]:
    """Make a protocol that closes a connection without a request: anything in the sandbox can open one, at our cost."""

    class Impatient(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(silence, self._give_up)

        def _give_up(self) -> None:
            if getattr(self, "scope", None) is None and not self.transport.is_closing():
                self.transport.abort()

    return Impatient


async def serve(
    supervisor: Supervisor,
    *,
    listener: socket.socket,
    pem: bytes,
    token: str,
    identity: ServerIdentity,
    started: asyncio.Event | None = None,
    tempo: Tempo = STANDARD,
) -> None:
    """Serve until cancelled, then close what is open: WebSockets with 1012, so that clients come back.

    ``listener`` is bound and listening; ``pem`` is certificate and key. ``started`` is set when requests are answered.
    """
    context = server_context(pem)
    # Inherited by the sockets that it accepts; without it many answers wait 40 ms for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        build(supervisor, token=token, identity=identity, tempo=tempo),
        http=_impatient(tempo.silence),
        ws="websockets-sansio",
        ws_max_size=MESSAGE_LIMIT,
        ws_per_message_deflate=False,
        ssl_context_factory=lambda config, default: context,
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_LIMIT,
        timeout_graceful_shutdown=2,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        if started is not None:
            started.set()
        await asyncio.get_running_loop().create_future()
    finally:
        await _close(server, listener)
