"""Turn every error into a problem document (RFC 9457): one table, for the API and for what sandboxes call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DataError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from rest_framework import exceptions

from registry_app.errors import FlowInvalid
from sandbox_supervisor.protocol import codec
from tasks_app import errors
from tasks_app.live import errors as live
from workspaces_app.errors import PreconditionFailed, PreconditionMissing, Unauthenticated
from workspaces_app.rest.shapes import InvalidInput

log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
PREFIXES = ("/api/", "/internal/")
RETRY_AFTER = 2  # seconds, where nothing better is known

# The nearest class among an error's ancestors counts.
STATUSES: Mapping[type[Exception], HTTPStatus] = {
    InvalidInput: HTTPStatus.BAD_REQUEST,
    codec.Malformed: HTTPStatus.BAD_REQUEST,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    errors.TokenRefused: HTTPStatus.UNAUTHORIZED,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    errors.NotVisible: HTTPStatus.NOT_FOUND,
    errors.Conflict: HTTPStatus.CONFLICT,
    PreconditionFailed: HTTPStatus.PRECONDITION_FAILED,
    PreconditionMissing: HTTPStatus.PRECONDITION_REQUIRED,
    errors.QuotaReached: HTTPStatus.CONFLICT,
    errors.Stale: HTTPStatus.CONFLICT,
    errors.TokenEnded: HTTPStatus.GONE,
    errors.Refused: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    live.Reclaimed: HTTPStatus.GONE,
    live.NoSandbox: HTTPStatus.GONE,
    live.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Http404: HTTPStatus.NOT_FOUND,
    PermissionDenied: HTTPStatus.FORBIDDEN,
    RequestDataTooBig: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    SuspiciousOperation: HTTPStatus.BAD_REQUEST,
    DataError: HTTPStatus.BAD_REQUEST,  # what no column can hold, a NUL in a text above all
}

CODES: Mapping[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "malformed",
    HTTPStatus.UNAUTHORIZED: "unauthenticated",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.NOT_ACCEPTABLE: "not_acceptable",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
    HTTPStatus.TOO_MANY_REQUESTS: "throttled",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}


DETAILS: Mapping[HTTPStatus, str] = {  # where the framework's words leave open what to do
    HTTPStatus.NOT_ACCEPTABLE: "This API answers in JSON; let Accept allow application/json.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is larger than is read here (2 MiB; 1 MiB from a sandbox).",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "Send the body as JSON, with Content-Type: application/json.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    status: HTTPStatus
    code: str
    detail: str
    members: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self, request_id: str) -> dict[str, Any]:
        return {
            **self.members,
            "type": f"urn:caisson:problem:{self.code}",
            "title": self.status.phrase,
            "status": int(self.status),
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id,
        }


def describe(error: Exception) -> Problem | None:
    """Give the problem that an error is; None for a defect of ours. A foreign exception's own words are never shown."""
    if isinstance(error, OperationalError):
        return _of_database(error)
    if isinstance(error, live.SupervisorRefused):
        return _of_supervisor(error)
    if isinstance(error, errors.ControlPlaneError):
        return _of_ours(error)
    if isinstance(error, exceptions.APIException):
        return _of_framework(error)
    status = _status(error)
    if status is None:
        return None
    detail = str(error) if isinstance(error, codec.Malformed) else _words(status)
    return Problem(status=status, code=CODES.get(status, "refused"), detail=detail, headers=_retry(status))


def _of_database(error: OperationalError) -> Problem:
    """Tell the client to come again; what the database said is for the operator."""
    log.warning("database_unavailable", exc_info=error)
    status = HTTPStatus.SERVICE_UNAVAILABLE
    detail = "The database does not answer now. Try again; the log of the control plane knows more."
    return Problem(status=status, code=CODES[status], detail=detail, headers=_retry(status))


def _status(error: Exception) -> HTTPStatus | None:
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)


def _words(status: HTTPStatus) -> str:
    return DETAILS.get(status) or status.description or status.phrase


def _of_ours(error: errors.ControlPlaneError) -> Problem | None:
    status = _status(error)
    if status is None:
        return None
    headers = _retry(status)
    if status is HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": 'Bearer realm="caisson"'}
    return Problem(status=status, code=error.code, detail=error.message, members=_members(error), headers=headers)


def _members(error: errors.ControlPlaneError) -> dict[str, Any]:
    """Give the error's facts; one that names a single place lists it as ``errors`` as well."""
    facts = dict(error.facts)
    if isinstance(error, FlowInvalid):
        facts["errors"] = [_of_flow(problem) for problem in facts.pop("problems")]
    for place in ("pointer", "parameter"):
        if place in facts and "errors" not in facts:
            facts["errors"] = [{place: facts.pop(place), "code": error.code, "detail": error.message}]
    return facts


def _of_flow(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Say one problem of a flow file in the words of ``errors``; line and column count from 1."""
    return {"detail": problem["message"], **{name: value for name, value in problem.items() if name != "message"}}


def _of_supervisor(error: live.SupervisorRefused) -> Problem:
    """Pass the supervisor's own no on; anything but a plain one is a bad gateway."""
    known = {400, 404, 409, 416, 422}
    status = HTTPStatus(error.status) if error.status in known else HTTPStatus.BAD_GATEWAY
    return Problem(status=status, code=error.code, detail=error.message, members=_members(error))


def _of_framework(error: exceptions.APIException) -> Problem:
    status = HTTPStatus(error.status_code)
    codes = error.get_codes()
    code = codes if isinstance(codes, str) and codes == "csrf_failed" else CODES.get(status, "refused")
    detail = error.detail if isinstance(error.detail, str) and status not in DETAILS else _words(status)
    members: dict[str, Any] = {}
    headers: dict[str, str] = {}
    wait = getattr(error, "wait", None)
    if wait:
        members["retry_after"] = int(wait)
        headers["Retry-After"] = str(int(wait))
    return Problem(status=status, code=code, detail=str(detail), members=members, headers=headers)


def _retry(status: HTTPStatus) -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER)} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}


DEFECT = Problem(
    status=HTTPStatus.INTERNAL_SERVER_ERROR,
    code="internal_error",
    detail="Something went wrong in the control plane; its log knows the request id.",
)


def respond(request: HttpRequest, problem: Problem) -> HttpResponse:
    """Give a problem as a response."""
    request_id = str(getattr(request, "request_id", ""))
    body = codec.encode(problem.document(request_id))
    response = HttpResponse(body, status=problem.status, content_type=MEDIA_TYPE, headers=dict(problem.headers))
    response["Cache-Control"] = "no-store"
    return response


def handle(error: Exception, context: Mapping[str, Any]) -> HttpResponse | None:
    """Serve as Django REST framework's exception handler; None lets ``ProblemMiddleware`` report a defect."""
    problem = describe(error)
    return None if problem is None else respond(context["request"]._request, problem)


class ProblemMiddleware:
    """Make sure that nothing below the API's prefixes ever answers an error as HTML."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "\0" in request.path:  # PostgreSQL cannot even be asked for such a name
            return respond(
                request, Problem(status=HTTPStatus.NOT_FOUND, code="not_found", detail="There is no such name.")
            )
        response = self._get_response(request)
        if not request.path.startswith(PREFIXES) or response.status_code < 400:
            return response
        if response.get("Content-Type", "").startswith((MEDIA_TYPE, "application/json")):
            return response
        status = HTTPStatus(response.status_code)
        problem = Problem(status=status, code=CODES.get(status, "refused"), detail=_words(status))
        replaced = respond(request, DEFECT if status >= 500 else problem)
        if "Allow" in response:
            replaced["Allow"] = response["Allow"]
        return replaced

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not request.path.startswith(PREFIXES):
            return None
        problem = describe(error)
        if problem is None:
            log.error("request_failed", path=request.path, exc_info=error)
        return respond(request, problem or DEFECT)
