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
    gap: range = range(0)  # offsets whose bytes are no longer there
    headers: dict[str, str] = field(default_factory=dict)


class Shortened(Exception):
    """The content lost bytes while it was being sent; the connection is broken off rather than padded."""


async def serve(request: Request, content: Content) -> Response:
    """Answer with the whole, one range (206), 304 or 416. Several ranges at once are answered with the whole.

    The whole of a content with a gap is what is left of it. A range ends where a gap begins, and one that begins in a
    gap begins behind it, as its ``Content-Range`` says.
    """
    headers = _headers(content)
    if content.etag and f'"{content.etag}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    first, size = await content.read(0, CHUNK)
    wanted = _wanted(request, content, size)
    if wanted is None:
        return _stream(content, headers, first, _around(content.gap, range(size)), status=200)
    kept = _around(content.gap, wanted)[:1]
    if not kept:
        raise Problem(416, "range_not_satisfiable", f"the content has {size} bytes", size=size)
    headers["Content-Range"] = f"bytes {kept[0].start}-{kept[0].stop - 1}/{size}"
    return _stream(content, headers, b"" if kept[0].start else first, kept, status=206)


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


def _around(gap: range, wanted: range) -> list[range]:
    """Give what is wanted before and behind the gap, as far as there is any."""
    if not gap:
        return [wanted] if wanted else []
    before = range(wanted.start, min(wanted.stop, gap.start))
    behind = range(max(wanted.start, gap.stop), wanted.stop)
    return [part for part in (before, behind) if part]


def _stream(
    content: Content, headers: dict[str, str], first: bytes, wanted: list[range], *, status: int
) -> StreamingResponse:
    headers["Content-Length"] = str(sum(map(len, wanted)))
    body = _chunks(content.read, wanted, first)
    return StreamingResponse(body, status, headers, media_type="application/octet-stream")


async def _chunks(read: Read, wanted: list[range], first: bytes) -> AsyncIterator[bytes]:
    """Give the wanted bytes; ``first`` are those that were read already."""
    for part in wanted:
        left, data, first = part, first[: len(part)], b""
        while left:
            if not data:
                data, _ = await read(left.start, min(CHUNK, len(left)))
            if not data:
                raise Shortened
            yield data
            left, data = left[len(data) :], b""
