"""The base of every REST view: what it may be asked, what it answers, and the one way to say who asks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from django.http import HttpRequest
from django.utils.cache import patch_vary_headers
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from sandbox_supervisor.protocol import codec
from workspaces_app.access import NOBODY, Actor
from workspaces_app.errors import Unauthenticated
from workspaces_app.rest import throttles
from workspaces_app.rest.authentication import SessionAuthentication, TokenAuthentication
from workspaces_app.rest.schema import Schema
from workspaces_app.rest.shapes import read_body, read_query

T = TypeVar("T")

READING = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Empty:
    """No members."""


@dataclass(frozen=True, slots=True)
class Method:
    """One HTTP method of a view.

    ``answer`` is a dataclass, or None for bytes of ``media_type`` or no content; ``rate`` a scope of ``throttles``.
    """

    answer: type[Any] | None
    status: int = 200
    media_type: str = "application/json"
    query: type[Any] = Empty
    body: type[Any] | None = None
    headers: tuple[str, ...] = ()  # of the request, that mean something
    needs: tuple[str, ...] = ()  # headers that must be there
    rate: str = ""  # empty: read or write


def declare(**methods: Method) -> Mapping[str, Method]:
    """Say what a view's methods take and give."""
    return methods


class ApiView(APIView):
    """A view that declares its ``methods``. Whatever is not declared is refused."""

    authentication_classes: Sequence[type[BaseAuthentication]] = (TokenAuthentication, SessionAuthentication)
    permission_classes = ()
    schema = Schema()
    open_to_all: ClassVar[bool] = False
    methods: ClassVar[Mapping[str, Method]] = MappingProxyType({})

    asked: Any  # the query as its shape
    _standing: throttles.Standing | None = None

    @property
    def actor(self) -> Actor:
        """Who asks."""
        return self.request.auth if isinstance(self.request.auth, Actor) else NOBODY

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if not self.open_to_all and self.actor.user_id is None:
            raise Unauthenticated("Sign in first, or send a token.")
        self._throttle(request)
        declared = self._declared(request)
        self.asked = read_query(dict(request.query_params.lists()), declared.query if declared else Empty)

    def read(self, into: type[T]) -> T:
        """Read the request's JSON body. Raises InvalidInput."""
        return read_body(self.request.data, into)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        for name, value in (self._standing.headers() if self._standing else {}).items():
            final[name] = value
        final.setdefault("Cache-Control", "no-store")
        patch_vary_headers(final, ("Authorization", "Cookie"))
        return final

    def _declared(self, request: Request) -> Method | None:
        """Give what the view says of the request's method; HEAD asks what GET asks."""
        return self.methods.get("GET" if request.method == "HEAD" else request.method or "")

    def _throttle(self, request: Request) -> None:
        declared = self._declared(request)
        scope = (declared and declared.rate) or ("read" if request.method in READING else "write")
        user_id = self.actor.user_id  # of the member, however many tokens they have
        who = f"user:{user_id}" if user_id is not None else str(request.META.get("REMOTE_ADDR", ""))
        self._standing = throttles.count(scope, who)
        if self._standing.exceeded:
            raise Throttled(wait=self._standing.reset)


def answer(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Give a dataclass as JSON."""
    return Response(codec.plain(value), status=status, headers=dict(headers or {}))


def strong(tag: str) -> str:
    """Give a strong entity tag."""
    return f'"{tag}"'


def not_modified(request: Request | HttpRequest, etag: str) -> bool:
    """Say whether the client has this very version already."""
    given = request.headers.get("If-None-Match", "")
    return etag in {tag.strip().removeprefix("W/") for tag in given.split(",")}
