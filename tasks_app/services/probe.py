"""Ask a supervisor directly whether it lives: over TLS, its certificate compared before anything is sent."""

import hmac
import http.client
import socket
import ssl
from hashlib import sha256

import structlog

from sandbox_providers.contract import Endpoint

log = structlog.get_logger()

TIMEOUT = 2.0  # seconds for each step
ANSWER_LIMIT = 4096  # bytes


def answers(endpoint: Endpoint | None, token: str) -> bool:
    """Say whether the supervisor behind ``endpoint`` says 200 to ``/healthz``; False for silence of every kind."""
    if endpoint is None:
        return False
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout=TIMEOUT) as plain:
            return _ask(plain, endpoint, token)
    except (OSError, http.client.HTTPException) as error:
        log.debug("probe_unanswered", error=type(error).__name__)
        return False


def _ask(plain: socket.socket, endpoint: Endpoint, token: str) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the pinned fingerprint below is the check
    with context.wrap_socket(plain) as secured:
        certificate = secured.getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(sha256(certificate).hexdigest(), endpoint.fingerprint):
            return False
        secured.settimeout(TIMEOUT)
        head = (
            f"GET /healthz HTTP/1.1\r\nHost: supervisor\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
        secured.sendall(head.encode("ascii"))
        answer = http.client.HTTPResponse(secured)
        answer.begin()
        answer.read(ANSWER_LIMIT)
        return answer.status == http.client.OK
