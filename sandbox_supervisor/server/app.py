"""The routes, the bearer check in front of them, and the table that turns errors into problems."""

import hmac
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_supervisor.server.attempts import AttemptPages, json
from sandbox_supervisor.server.facade import Gone, NotFound, Supervisor
from sandbox_supervisor.server.graph import GraphPages
from sandbox_supervisor.server.problems import Problem
from sandbox_supervisor.server.stream import Streams
from sandbox_supervisor.server.tempo import Tempo

OPEN_PATHS = frozenset({"/healthz"})
HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """What ``/readyz`` echoes, so that the control plane knows whom it reached."""

    instance: str
    specification: str  # digest


class Bearer:
    """Lets nobody past without the token, whatever the path, so that strangers cannot learn which paths exist."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] == "http" and scope["path"] in OPEN_PATHS
        if is_open or self._admits(scope):
            await self._app(scope, receive, send)
        else:
            refusal = Problem(401, "unauthenticated", "send the bearer token of this sandbox").response()
            await refusal(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], b"Bearer " + self._token)


class Probes:
    def __init__(self, supervisor: Supervisor, identity: ServerIdentity) -> None:
        self._supervisor = supervisor
        self._identity = identity

    async def healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(self, request: Request) -> Response:
        items = self._supervisor.readiness()
        ready = all(word == "ok" for word in items.values())
        body = {
            "ready": ready,
            "readiness": items,
            "instance": self._identity.instance,
            "specification": self._identity.specification,
            "epoch": self._supervisor.epoch,
        }
        return json(body, 200 if ready else 503)


def build(supervisor: Supervisor, *, token: str, identity: ServerIdentity, tempo: Tempo) -> ASGIApp:
    """Put the application together. Raises ValueError for an empty token."""
    if not token:
        raise ValueError("a supervisor without a bearer token would be open to everything in its sandbox")
    probes = Probes(supervisor, identity)
    app = Starlette(
        routes=[
            Route("/healthz", probes.healthz),
            Route("/readyz", probes.readyz),
            *GraphPages(supervisor).routes(),
            *AttemptPages(supervisor).routes(),
            WebSocketRoute("/v1/stream", Streams(supervisor, tempo).serve),
        ],
        exception_handlers=dict.fromkeys((Problem, NotFound, Gone, TimeoutError, HTTPException, Exception), _explain),
    )
    return Bearer(app, token)


async def _explain(request: Request, error: Exception) -> Response:
    match error:
        case Problem():
            problem = error
        case NotFound():
            problem = Problem(404, "not_found", str(error))
        case Gone():
            problem = Problem(503, "gone", str(error))
        case TimeoutError():
            problem = Problem(408, "timeout", "the request did not arrive in time")
        case HTTPException(status_code=status, detail=detail):
            problem = Problem(status, HTTP_CODES.get(status, "refused"), detail)
        case _:
            problem = Problem(500, "internal_error", "the supervisor failed to answer; its log says why")
    return problem.response()
