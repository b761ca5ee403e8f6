"""What an attempt left: its output, its files, its diff, its artefacts. All of it is a stranger's content."""

from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.server import byte_ranges
from sandbox_supervisor.server.byte_ranges import CHUNK, Content
from sandbox_supervisor.server.facade import NotFound, Supervisor
from sandbox_supervisor.server.problems import Problem
from sandbox_supervisor.server.query import Query

STREAMS = ("stdout", "stderr")


class AttemptPages:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def routes(self) -> list[BaseRoute]:
        base = "/v1/attempts/{attempt}"
        return [
            Route(f"{base}/log", self.log),
            Route(f"{base}/files", self.files),
            Route(f"{base}/files/content", self.file),
            Route(f"{base}/diff", self.diff),
            Route(f"{base}/artefacts", self.artefacts),
            Route(f"{base}/artefacts/{{digest}}", self.artefact),
        ]

    async def log(self, request: Request) -> Response:
        """Bytes of stdout or stderr; how many the cap has dropped of the middle is told in ``X-Caisson-Dropped-Bytes``.

        A range counts in what the attempt produced, as ``offset`` and ``length`` of its events do.
        """
        attempt = request.path_params["attempt"]
        stream = Query(request, allowed=("stream",)).one("stream", "stdout")
        if stream not in STREAMS:
            raise Problem(400, "invalid_parameter", "stream: stdout or stderr", parameter="stream")

        async def read(offset: int, length: int) -> tuple[bytes, int]:
            part = await self._supervisor.attempt_log(attempt, stream, offset, length)
            moved = part.data and part.offset != offset  # into the gap, which grows while the attempt runs
            return b"" if moved else part.data, part.size

        known = await self._supervisor.attempt_log(attempt, stream, 0, 1)
        headers = {"X-Caisson-Dropped-Bytes": str(known.dropped)}
        gap = range(known.head, known.head + known.dropped)
        content = Content(read=read, name=f"{attempt}.{stream}.log", headers=headers, gap=gap)
        return await byte_ranges.serve(request, content)

    async def files(self, request: Request) -> Response:
        path = Query(request, allowed=("path",)).one("path")
        return json(await self._supervisor.attempt_files(request.path_params["attempt"], path))

    async def file(self, request: Request) -> Response:
        """One file of the tree; a small one carries the digest of its bytes as ETag."""
        attempt = request.path_params["attempt"]
        path = Query(request, allowed=("path",)).one("path")
        if not path:
            raise Problem(400, "invalid_parameter", "path: which file", parameter="path")

        async def read(offset: int, length: int) -> tuple[bytes, int]:
            return await self._supervisor.attempt_file(attempt, path, offset, length)

        data, size = await read(0, CHUNK)
        etag = sha256(data).hexdigest() if len(data) == size else None
        return await byte_ranges.serve(request, Content(read=read, name=path.rsplit("/", 1)[-1], etag=etag))

    async def diff(self, request: Request) -> Response:
        Query(request, allowed=())
        attempt = request.path_params["attempt"]
        data = await self._supervisor.attempt_diff(attempt)

        async def read(offset: int, length: int) -> tuple[bytes, int]:
            return data[offset : offset + length], len(data)

        content = Content(read=read, name=f"{attempt}.diff", etag=sha256(data).hexdigest())
        return await byte_ranges.serve(request, content)

    async def artefacts(self, request: Request) -> Response:
        Query(request, allowed=())
        return json(await self._artefacts(request.path_params["attempt"]))

    async def artefact(self, request: Request) -> Response:
        """An artefact that this attempt refers to, by its digest (``sha256:<hex>`` or the hex alone)."""
        Query(request, allowed=())
        digest = "sha256:" + request.path_params["digest"].removeprefix("sha256:")
        entries = await self._artefacts(request.path_params["attempt"])
        entry = next((entry for entry in entries if entry["digest"] == digest), None)
        if entry is None:
            raise NotFound("the attempt has no artefact with this digest")

        async def read(offset: int, length: int) -> tuple[bytes, int]:
            return await self._supervisor.artefact(digest, offset, length)

        return await byte_ranges.serve(request, Content(read=read, name=str(entry["name"]), etag=digest))

    async def _artefacts(self, attempt: str) -> tuple[dict[str, Any], ...]:
        for view in (await self._supervisor.snapshot()).attempts:
            if view.id == attempt:
                return view.artefacts
        raise NotFound("no such attempt")


def json(value: Any, status: int = 200) -> Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(codec.encode(value), status, headers, media_type="application/json")
