"""The event stream of a supervisor, as a WebSocket over pinned TLS."""

from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.datastructures import HeadersLike
from websockets.exceptions import InvalidHandshake, WebSocketException

from sandbox_supervisor.protocol.stream import FRAME_LIMIT
from tasks_app.live import pin
from tasks_app.live.dial import Upstream
from tasks_app.live.errors import Unreachable, WrongInstance

HANDSHAKE = 10.0  # seconds
ALIVE = 20.0  # seconds between pings, and for a pong
QUEUED = 2  # messages read ahead; beyond that TCP holds the supervisor back


async def open_stream(upstream: Upstream) -> ClientConnection:
    """Connect, check the certificate, and only then send the bearer. Raises Unreachable, WrongInstance."""
    peer = upstream.peer
    try:
        return await _Direct(
            f"wss://{_in_url(peer.host)}:{peer.port}/v1/stream",
            ssl=pin.context(),
            create_connection=_pinned(peer.fingerprint),
            additional_headers={"Authorization": f"Bearer {upstream.token.reveal()}"},
            user_agent_header=None,
            compression=None,
            proxy=None,
            open_timeout=HANDSHAKE,
            ping_interval=ALIVE,
            ping_timeout=ALIVE,
            close_timeout=1.0,
            max_size=FRAME_LIMIT,
            max_queue=QUEUED,
        )
    except WrongInstance:
        raise
    except (OSError, WebSocketException, InvalidHandshake) as error:
        raise Unreachable(
            "The supervisor of this sandbox does not answer.", cause=f"{type(error).__name__}: {error}"
        ) from error


class _Direct(connect):
    """Follows no redirect."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


def _pinned(fingerprint: str) -> type[ClientConnection]:
    class Pinned(ClientConnection):
        async def handshake(
            self, additional_headers: HeadersLike | None = None, user_agent_header: str | None = None
        ) -> None:
            shown: Any = self.transport.get_extra_info("ssl_object")
            pin.check(shown.getpeercert(binary_form=True), fingerprint)
            await super().handshake(additional_headers, user_agent_header)

    return Pinned


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
