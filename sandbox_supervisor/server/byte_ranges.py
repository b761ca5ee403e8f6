"""Serve bytes that live elsewhere: ranges, ETags, and headers that keep a browser from believing their content."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sandbox_supervisor.server.problems import Problem

CHUNK = 256 * 1024
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

Read = Callable[[int, int], Awaitable[tuple[bytes, int]]]  # offset, length → bytes, whole size


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    read: Read
    name: str  # proposed file name
    etag: str | None = None  # strong, without quotes
    headers: dict[str, str] = field(default_factory=dict)


class Shortened(Exception):
    """The content lost bytes while it was being sent; the connection is broken off rather than padded."""


async def serve(request: Request, content: Content) -> Response:
    """Answer with the whole, one range (206), 304 or 416. Several ranges at once are answered with the whole."""
    headers = _headers(content)
    if content.etag and f'"{content.etag}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    first, size = await content.read(0, CHUNK)
    wanted = _wanted(request, content, size)
    if wanted is None:
        return _stream(content, headers, first, range(size), status=200)
    if not wanted:
        raise Problem(416, "range_not_satisfiable", f"the content has {size} bytes", size=size)
    headers["Content-Range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{size}"
    return _stream(content, headers, b"" if wanted.start else first, wanted, status=206)


def _headers(content: Content) -> dict[str, str]:
    headers = {
        "Accept-Ranges": "bytes",
        "Cache-Control": "no-store",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(content.name, safe='')}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
        **content.headers,
    }
    if content.etag:
        headers["ETag"] = f'"{content.etag}"'
    return headers


def _wanted(request: Request, content: Content, size: int) -> range | None:
    found = RANGE.fullmatch(request.headers.get("range", ""))
    condition = request.headers.get("if-range")
    if found is None or (condition is not None and condition != f'"{content.etag}"'):
        return None
    first, last = found.groups()
    if first:
        return range(int(first), min(int(last) + 1, size) if last else size)
    return range(max(size - int(last), 0), size) if last else None


def _stream(
    content: Content, headers: dict[str, str], first: bytes, wanted: range, *, status: int
) -> StreamingResponse:
    headers["Content-Length"] = str(len(wanted))
    body = _chunks(content.read, wanted, first)
    return StreamingResponse(body, status, headers, media_type="application/octet-stream")


async def _chunks(read: Read, wanted: range, first: bytes) -> AsyncIterator[bytes]:
    """Give the wanted bytes; ``first`` are those that were read already."""
    data = first[: len(wanted)]
    while wanted:
        if not data:
            data, _ = await read(wanted.start, min(CHUNK, len(wanted)))
        if not data:
            raise Shortened
        yield data
        wanted, data = wanted[len(data) :], b""
