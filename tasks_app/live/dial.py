"""Ask the supervisor of a task's sandbox. Nothing that it answers is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import h11

from sandbox_providers.contract import Secret
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.messages import Command, CommandOutcome, Snapshot
from tasks_app.live.errors import (
    NoSandbox,
    NotYet,
    Reclaimed,
    SupervisorRefused,
    TooLarge,
    Unreachable,
    WrongInstance,
)
from tasks_app.live.exchange import Bounds, Fetched, Peer, exchange
from tasks_app.models import Task
from tasks_app.services import tokens
from tasks_app.states import Presence

__all__ = [
    "Fetched",
    "NoSandbox",
    "NotYet",
    "Reclaimed",
    "SupervisorRefused",
    "TooLarge",
    "Unreachable",
    "Upstream",
    "WrongInstance",
    "get_attempt",
    "get_events",
    "get_ready",
    "get_snapshot",
    "post_command",
    "upstream_of",
]

T = TypeVar("T")

SMALL = Bounds(seconds=5.0, bytes=64 * 1024)
LARGE = Bounds(seconds=20.0, bytes=16 * 1024 * 1024)
LONGEST_WAIT = 25.0  # seconds of a long poll


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where one supervisor listens, how to know it, and what lets us in."""

    peer: Peer
    token: Secret


def upstream_of(task: Task) -> Upstream:
    """Say how to reach a task's supervisor. Raises NotYet, NoSandbox, Reclaimed."""
    match task.presence:
        case Presence.RECLAIMING | Presence.RECLAIMED:
            raise Reclaimed("The sandbox of this task was removed; its final snapshot is kept.")
        case Presence.LOST | Presence.TERMINATED:
            raise NoSandbox(f"The sandbox of this task is {task.presence}.", presence=str(task.presence))
    if not task.endpoint:
        raise NotYet("The sandbox of this task is not there yet.")
    peer = Peer(
        host=str(task.endpoint["host"]),
        port=int(task.endpoint["port"]),
        fingerprint=str(task.endpoint["fingerprint"]),
    )
    return Upstream(peer=peer, token=Secret(tokens.dial_token(task)))


def get_ready(upstream: Upstream) -> dict[str, Any]:
    """Probe: what ``/readyz`` says, also when it says not ready."""
    answer = _fetch(upstream, "GET", "/readyz", bounds=SMALL)
    if answer.status not in {200, 503}:
        raise _refusal(answer)
    return _read(answer, dict[str, Any])


def get_snapshot(upstream: Upstream) -> Snapshot:
    return _read(_ok(_fetch(upstream, "GET", "/v1/snapshot", bounds=LARGE)), Snapshot)


def get_events(
    upstream: Upstream, *, after: str = "", limit: int = 500, wait: float = 0.0, only: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One page of events after ``epoch:seq``; ``wait`` seconds for the first of them; ``only`` by node, attempt, kind.

    Raises SupervisorRefused with ``epoch_changed`` or ``seq_ahead`` when a snapshot is needed instead.
    """
    wait = min(wait, LONGEST_WAIT)
    query = {"limit": str(limit), **(only or {}), **({"after": after} if after else {})}
    if wait > 0:
        query["wait"] = f"{wait:.3f}"
    bounds = Bounds(seconds=LARGE.seconds + wait, bytes=LARGE.bytes)
    return _read(_ok(_fetch(upstream, "GET", f"/v1/events?{urlencode(query)}", bounds=bounds)), dict[str, Any])


def get_attempt(
    upstream: Upstream,
    attempt: str,
    what: str,
    *,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Fetched:
    """What an attempt left: ``what`` is log, files, files/content, diff, artefacts or artefacts/<digest>.

    ``headers`` may be Range, If-Range and If-None-Match; an answer above 16 MiB is TooLarge, so ask for ranges. The
    content is a stranger's: hand it on as an attachment only.
    """
    path = f"/v1/attempts/{quote(attempt, safe='')}/{quote(what, safe='/:')}"
    target = f"{path}?{urlencode(query)}" if query else path
    answer = _fetch(upstream, "GET", target, bounds=LARGE, headers=headers)
    if answer.status in {200, 206, 304}:
        return answer
    raise _refusal(answer)


def post_command(upstream: Upstream, command: Command) -> CommandOutcome:
    """Carry out a person's command; repeating its id gives the first outcome. Raises SupervisorRefused."""
    answer = _fetch(upstream, "POST", "/v1/commands", body=codec.encode(command), bounds=LARGE)
    return _read(_ok(answer), CommandOutcome)


def _fetch(
    upstream: Upstream,
    method: str,
    target: str,
    *,
    bounds: Bounds,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> Fetched:
    sent = {
        "Host": "supervisor",
        "Authorization": f"Bearer {upstream.token.reveal()}",
        "Content-Length": str(len(body)),
        "Content-Type": "application/json",
        "Connection": "close",
        **(headers or {}),
    }
    request = h11.Request(method=method, target=target, headers=list(sent.items()))
    return exchange(upstream.peer, request, body, bounds)


def _ok(answer: Fetched) -> Fetched:
    if answer.status == 200:
        return answer
    raise _refusal(answer)


def _read(answer: Fetched, into: type[T]) -> T:
    try:
        return codec.decode(answer.body, into)
    except Malformed as error:
        raise Unreachable("The supervisor of this sandbox answers nonsense.", cause=str(error)) from None


def _refusal(answer: Fetched) -> SupervisorRefused | Unreachable:
    """Read a problem document; a refused bearer and an inner failure are no answer to the question."""
    if answer.status in {401, 403} or answer.status >= 500 or answer.status < 400:
        return Unreachable("The supervisor of this sandbox does not take the question.", status=answer.status)
    if len(answer.body) > SMALL.bytes:
        raise TooLarge("The refusal of the supervisor has no end.", limit=SMALL.bytes)
    said = _read(answer, dict[str, Any])
    facts = {name: value for name, value in said.items() if name not in {"type", "title", "status", "detail", "code"}}
    message = str(said.get("detail") or "The supervisor refused.")[:1000]
    return SupervisorRefused(message, status=answer.status, code=str(said.get("code") or "")[:64], facts=facts)
