"""Give every request an id that its answer, its log lines and its problem document carry; keep answers private."""

import re
import secrets
from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse

ACCEPTED = re.compile(r"[A-Za-z0-9_-]{8,64}")


class RequestIdMiddleware:
    """Take ``X-Request-Id`` when it has a harmless form, else make one; bind it for the log."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if ACCEPTED.fullmatch(given) else f"req_{secrets.token_hex(8)}"
        request.request_id = request_id  # type: ignore[attr-defined]  # read by the problem handler
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            response = self._get_response(request)
        response["X-Request-Id"] = request_id
        return response


class PrivateMiddleware:
    """Keep answers out of shared caches, and asked for anew after a sign-out, unless they say otherwise themselves."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        response.setdefault("Cache-Control", "private, no-cache")
        return response
