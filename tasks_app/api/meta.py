"""About the deployment itself: what it is, whether it is alive and ready, and the shapes it speaks."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from django.conf import settings
from django.core.cache import cache as shared_cache
from django.db import DatabaseError
from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from rest_framework.request import Request
from rest_framework.response import Response

from registry_app.flows import shape
from sandbox_supervisor.protocol import PROTOCOL, codec
from sandbox_supervisor.protocol.events import Envelope
from sandbox_supervisor.protocol.messages import Command, Snapshot
from tasks_app.api import shapes
from tasks_app.errors import NotVisible
from tasks_app.services import clock, sweeps
from workspaces_app.rest.views import ApiView, Method, answer, declare

JSON = "application/json"
FLOW = "flow.v1.json"
SHAPES: dict[str, type[Any]] = {"event.v1.json": Envelope, "snapshot.v1.json": Snapshot, "command.v1.json": Command}


def release() -> str:
    """Give the version of this installation."""
    try:
        return version("caisson")
    except PackageNotFoundError:
        return "0.1.0"


class Meta(ApiView):
    """About this deployment."""

    methods = declare(GET=Method(shapes.MetaRecord))

    def get(self, request: Request) -> Response:
        """Read version, protocol, providers and the clock that deadlines are judged by."""
        record = shapes.MetaRecord(
            name="Caisson",
            version=release(),
            api="v1",
            protocol=PROTOCOL,
            providers=tuple(settings.PROVIDERS),
            console_url=settings.PUBLIC_URL,
            server_time=clock.database_now(),
        )
        return answer(record)


class Description(ApiView):
    """This API in OpenAPI."""

    authentication_classes = ()
    open_to_all = True
    schema = None  # type: ignore[assignment]  # it does not describe itself
    methods = declare(GET=Method(dict))

    def get(self, request: Request) -> HttpResponse:
        """Give the description, which is made once."""
        return HttpResponse(_description(), content_type=JSON)


@cache
def _description() -> bytes:
    generator: Any = SchemaGenerator
    return codec.encode(generator().get_schema(request=None, public=True))


class Schemas(ApiView):
    """The JSON Schema of something that the API or a flow file holds."""

    methods = declare(GET=Method(dict))

    def get(self, request: Request, name: str) -> Response:
        """Read a schema: flow.v1.json, event.v1.json, snapshot.v1.json or command.v1.json."""
        if name == FLOW:
            return Response(shape.schema())
        if name not in SHAPES:
            known = ", ".join((FLOW, *SHAPES))
            raise NotVisible(f"There is no schema {name[:40]!r}; there are {known}.", code="schema_unknown")
        return Response(msgspec.json.schema(SHAPES[name]))


class Alive(ApiView):
    """Whether the process answers."""

    authentication_classes = ()
    open_to_all = True
    methods = declare(GET=Method(shapes.ReadyRecord))

    def get(self, request: Request) -> Response:
        """Answer; nothing else is looked at."""
        return answer(shapes.ReadyRecord(ready=True, checks={}))


class Ready(ApiView):
    """Whether the product works as a whole."""

    authentication_classes = ()
    open_to_all = True
    methods = declare(GET=Method(shapes.ReadyRecord))

    def get(self, request: Request) -> Response:
        """Look at the database, Redis and when each sweep last ran; 503 when something is wrong."""
        checks = {"database": _database(), "redis": _redis()}
        if checks["database"] == "ok":
            checks |= {f"sweep {age.name}": _sweep(age) for age in sweeps.ages()}
        ready = all(word == "ok" for word in checks.values())
        return answer(shapes.ReadyRecord(ready=ready, checks=checks), status=200 if ready else 503)


def _sweep(age: sweeps.Age) -> str:
    if not age.late:
        return "ok"
    return f"last ran at {age.finished_at.isoformat()}" if age.finished_at else "has never run"


def _database() -> str:
    try:
        clock.database_now()
    except DatabaseError as error:
        return f"does not answer ({type(error).__name__})"
    return "ok"


def _redis() -> str:
    try:
        shared_cache.get("ready")
    except Exception as error:  # noqa: BLE001 - whatever ails it, it is said and nothing more
        return f"does not answer ({type(error).__name__})"
    return "ok"
