"""The graph and its events as plain HTTP, and the commands."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.messages import Command, OutcomeCode
from sandbox_supervisor.protocol.stream import MESSAGE_LIMIT, PAGE, Filter, Position
from sandbox_supervisor.server.attempts import json
from sandbox_supervisor.server.facade import Supervisor
from sandbox_supervisor.server.problems import Problem
from sandbox_supervisor.server.query import Query

LONGEST_WAIT = 30.0  # seconds of a long poll
STATUS_OF = {
    OutcomeCode.DONE: 200,
    OutcomeCode.REFUSED: 409,
    OutcomeCode.UNKNOWN: 404,
    OutcomeCode.INVALID: 422,
}


class GraphPages:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/snapshot", self.snapshot),
            Route("/v1/events", self.events),
            Route("/v1/commands", self.commands, methods=["POST"]),
        ]

    async def snapshot(self, request: Request) -> Response:
        Query(request, allowed=())
        return json(await self._supervisor.snapshot())

    async def events(self, request: Request) -> Response:
        """One page after a position: ``{epoch, head, after, upto, events}``; ``upto`` is where to go on.

        With ``wait`` it is held until something is there. 409 ``epoch_changed`` or ``seq_ahead``: fetch a snapshot.
        """
        query = Query(request, allowed=("after", "limit", "wait", "node", "attempt", "kind"))
        after = self._position(query)
        limit = query.integer("limit", PAGE, least=1, most=PAGE)
        await self._wait(after, query.seconds("wait", 0.0, most=LONGEST_WAIT))
        wanted = Filter(nodes=query.all("node"), attempts=query.all("attempt"), kinds=query.all("kind"))
        found = await self._supervisor.events(after, limit)
        body = {
            "epoch": self._supervisor.epoch,
            "head": self._supervisor.head().seq,
            "after": after,
            "upto": found[-1].seq if found else after,
            "events": [event for event in found if wanted.matches(event)],
        }
        return json(body)

    async def commands(self, request: Request) -> Response:
        """Carry out a command; repeating its id gives the first outcome. 409, 404 or 422 when it cannot be done."""
        Query(request, allowed=())
        try:
            command = codec.decode(await _body(request), Command)
        except Malformed as error:
            raise Problem(422, "malformed_command", str(error)) from None
        outcome = await self._supervisor.submit(command)
        if outcome.code is OutcomeCode.DONE:
            return json(outcome)
        raise Problem(
            STATUS_OF[outcome.code],
            outcome.reason or str(outcome.code),
            outcome.message,
            outcome=codec.plain(outcome),
        )

    def _position(self, query: Query) -> int:
        text = query.one("after")
        if not text:
            return 0
        try:
            after = Position.parse(text)
        except Malformed as error:
            raise Problem(400, "invalid_parameter", f"after: {error}", parameter="after") from None
        facts = {"epoch": self._supervisor.epoch, "head": self._supervisor.head().seq}
        if after.epoch != self._supervisor.epoch:
            raise Problem(409, "epoch_changed", "this log has another epoch: fetch a snapshot", **facts)
        if after.seq > self._supervisor.head().seq:
            raise Problem(409, "seq_ahead", "this log has not come that far: fetch a snapshot", **facts)
        return after.seq

    async def _wait(self, after: int, seconds: float) -> None:
        if seconds and self._supervisor.head().seq <= after:
            await self._supervisor.wait_past(after, seconds)


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async with asyncio.timeout(LONGEST_WAIT):
        async for part in request.stream():
            size += len(part)
            if size > MESSAGE_LIMIT:
                raise Problem(413, "body_too_large", f"at most {MESSAGE_LIMIT} bytes")
            parts.append(part)
    return b"".join(parts)
