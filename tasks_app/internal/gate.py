"""Let a sandbox in: by its token, within the scope that the state of its task leaves it, and not too often."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import Throttled

from sandbox_supervisor.protocol import codec
from tasks_app.errors import TokenRefused
from tasks_app.models import Task
from tasks_app.services.tokens import Scope, verify_task_token
from tasks_app.texts import without_nul
from workspaces_app.rest import throttles
from workspaces_app.rest.shapes import InvalidInput

P = ParamSpec("P")
T = TypeVar("T")
View = Callable[Concatenate[HttpRequest, Task, P], HttpResponse]
Gated = Callable[Concatenate[HttpRequest, P], HttpResponse]

BODY_LIMIT = 1024 * 1024  # bytes


def sandbox(scope: Scope, *methods: str) -> Callable[[View[P]], Gated[P]]:
    """Give the view the task that the token speaks for; anything else is 401, 410 or 429."""

    def decorate(view: View[P]) -> Gated[P]:
        @csrf_exempt
        @wraps(view)
        def gated(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            task = verify_task_token(_bearer(request), scope)
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            standing = throttles.count("sandbox", task.pk)
            if standing.exceeded:
                raise Throttled(wait=standing.reset)
            return view(request, task, *args, **kwargs)

        return cast("Gated[P]", gated)

    return decorate


def _bearer(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise TokenRefused("Send the task token as Authorization: Bearer cst_….")
    return token.strip()


def body(request: HttpRequest) -> bytes:
    """Give the body. Raises RequestDataTooBig beyond 1 MiB: what is larger comes in chunks."""
    announced = request.headers.get("Content-Length") or "0"
    if not announced.isdecimal() or int(announced) > BODY_LIMIT or len(request.body) > BODY_LIMIT:
        raise RequestDataTooBig
    return request.body


def read(request: HttpRequest, into: type[T]) -> T:
    """Read a JSON body into a protocol value; unknown members are ignored. Raises Malformed."""
    return codec.decode(without_nul(body(request)), into)


def number(request: HttpRequest, name: str) -> int:
    """Give a query parameter that is a number from 0. Raises InvalidInput."""
    text = request.GET.get(name, "")
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise InvalidInput(f"{name} must be a number of bytes.", errors=[{"parameter": name, "code": "invalid"}])
    return int(text)


def answer(value: object, status: int = 200) -> HttpResponse:
    return HttpResponse(codec.encode(value), status=status, content_type="application/json")
