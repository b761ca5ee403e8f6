"""The supervisor's client to the control plane: heartbeats, deliveries, uploads. Work goes on while it is away."""

import asyncio
import random
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sandbox_supervisor.http_client import Address, Answer, HttpClient, Unreachable
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.messages import (
    DeliveryAnswer,
    DeliveryRequest,
    Desired,
    HeartbeatAnswer,
)
from sandbox_supervisor.protocol.spec import ControlPlane
from sandbox_supervisor.server.facade import Supervisor
from sandbox_supervisor.upload import Source, Stuck, Uploader

T = TypeVar("T")

BASE = "/internal/v1/"
BEAT_TIMEOUT = 10.0  # seconds for one heartbeat
TRANSFER_TIMEOUT = 60.0  # seconds for one chunk
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
SHORTEST_INTERVAL = 0.2  # seconds between beats on the average, whatever is urgent and whatever the answer asks for
URGENT_AT_ONCE = 4  # urgent beats that need no pause before them, once there was enough of it
LONGEST_INTERVAL = 60.0
REFUSAL_PATIENCE = 60.0  # seconds of 401 before it is believed: a control plane may be misconfigured for a moment
BUSY = frozenset({408, 425, 429})


class ControlRefused(Exception):
    """The control plane understood and said no; asking again will not help."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class ControlEnded(Exception):
    """The control plane no longer takes anything from this sandbox."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Backoff:
    """Pauses that double up to a limit, each shortened by a random part so that sandboxes do not return in step."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE

    def reset(self) -> None:
        self._next = FIRST_PAUSE

    def pause(self, at_least: float = 0.0) -> float:
        pause, self._next = self._next, min(self._next * 2, LONGEST_PAUSE)
        return max(pause * random.uniform(0.5, 1.0), min(at_least, LONGEST_INTERVAL))  # noqa: S311 (no secret)


class Control:
    """All calls to ``/internal/v1/``. Heartbeats have a connection of their own, so that no upload delays them."""

    def __init__(self, endpoint: ControlPlane, *, token: str, trust: ssl.SSLContext | None = None) -> None:
        address = Address.parse(endpoint.url, endpoint.socket)
        self._interval = endpoint.heartbeat_interval
        self._beats = HttpClient(address, token=token, trust=trust)
        self._transfers = HttpClient(address, token=token, trust=trust)
        self._uploads = Uploader(self._transfer)
        self._refused_since: float | None = None
        self._earned_until = 0.0  # the moment by which every beat so far has had its pause
        self.ended: str | None = None  # why nothing more is wanted from this sandbox

    async def close(self) -> None:
        await self._beats.close()
        await self._transfers.close()

    # --- heartbeats ---

    async def run(self, supervisor: Supervisor) -> None:
        """Send heartbeats until cancelled: every interval, at once when something urgent happened."""
        backoff, beat = Backoff(), 0
        while True:
            beat += 1
            pause = await self._beat(supervisor, beat)
            if pause is not None:
                await asyncio.sleep(backoff.pause(pause))
                continue
            backoff.reset()
            if self.ended is None:
                await self._pause(supervisor)
            else:
                await asyncio.sleep(LONGEST_INTERVAL)

    async def _pause(self, supervisor: Supervisor) -> None:
        """Wait for the next beat to be due. What is urgent goes at once, a few times: an agent can make much of it."""
        clock = asyncio.get_running_loop().time
        self._earned_until = max(self._earned_until, clock()) + SHORTEST_INTERVAL
        await supervisor.wait_urgent(self._interval)
        await asyncio.sleep(max(0.0, self._earned_until - URGENT_AT_ONCE * SHORTEST_INTERVAL - clock()))

    async def _beat(self, supervisor: Supervisor, beat: int) -> float | None:
        """Send one; give how long to wait at least before the next try, None when it was answered."""
        body = codec.encode(await supervisor.heartbeat(beat))
        try:
            answer = await self._beats.request(
                "POST", BASE + "heartbeat", body, kind="application/json", timeout=BEAT_TIMEOUT
            )
            heard = self._heard(answer)
        except (Unreachable, Malformed):
            return 0.0
        if heard is None:
            return _retry_after(answer)
        self._interval = min(max(heard.interval, SHORTEST_INTERVAL), LONGEST_INTERVAL)
        await supervisor.hear(heard)
        return None

    def _heard(self, answer: Answer) -> HeartbeatAnswer | None:
        """Read an answer: 410 at once, and 401 for as long as the patience lasts, mean that all is over."""
        if answer.status == 200:
            self._refused_since = self.ended = None
            return codec.decode(answer.body, HeartbeatAnswer)
        if answer.status == 410 or (answer.status == 401 and self._patience_is_over()):
            self.ended = _problem(answer).code or "gone"
            return HeartbeatAnswer(
                status="ended", round=0, desired=Desired.STOP, reason=self.ended, interval=LONGEST_INTERVAL
            )
        if answer.status != 401:
            self._refused_since = None
        return None

    def _patience_is_over(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            self._refused_since = now
        return now - self._refused_since >= REFUSAL_PATIENCE

    # --- deliveries and uploads ---

    async def deliver(self, request: DeliveryRequest, bundle: Path | None) -> DeliveryAnswer:
        """Hand over a delivery and its bundle; resumes where a cut left off, and repeating it is one delivery.

        Returns once the control plane has every byte. Raises ControlRefused, ControlEnded.
        """
        body = codec.encode(request)
        answer = await self._ask("POST", "deliveries", DeliveryAnswer, body)
        if bundle is None or answer.offset >= request.bundle_size:
            return answer
        target = f"deliveries/{quote(answer.id, safe='')}/bundle"
        await self._send(target, Source.of(bundle), start=answer.offset)
        return await self._ask("POST", "deliveries", DeliveryAnswer, body)

    async def delivery_status(self, delivery: str) -> DeliveryAnswer:
        """Ask how a delivery stands. Raises ControlRefused, ControlEnded."""
        return await self._ask("GET", f"deliveries/{quote(delivery, safe='')}", DeliveryAnswer)

    async def upload_artefact(self, digest: str, path: Path, name: str) -> None:
        """Store an artefact by its digest (``sha256:<hex>``). Raises ControlRefused, ControlEnded."""
        await self._send(f"artefacts/{digest.removeprefix('sha256:')}", Source.of(path), name=name)

    async def archive(self, kind: str, source: bytes | Path) -> None:
        """Store a snapshot, capsule or parked bundle of this task. Raises ControlRefused, ControlEnded."""
        whole = Source.of(source)
        await self._send(f"archive/{kind}", whole, digest=await asyncio.to_thread(whole.digest))

    async def _send(self, target: str, source: Source, *, start: int = 0, **parameters: str) -> None:
        try:
            await self._uploads.send(target, source, start=start, **parameters)
        except Stuck as stuck:
            raise ControlRefused(409, "upload_stuck", str(stuck)) from None

    async def _transfer(self, target: str, chunk: bytes) -> dict[str, Any]:
        """Send one chunk; a 409 that names the receiver's offset is an answer like any other."""
        call = _Call(method="PUT", target=target, body=chunk, kind="application/octet-stream", also=(409,))
        status, said = await self._patiently(call, dict[str, Any])
        if status == 409 and not isinstance(said.get("offset"), int):
            raise _refused(status, said)
        return said

    async def _ask(self, method: str, target: str, into: type[T], body: bytes = b"") -> T:
        _, said = await self._patiently(_Call(method=method, target=target, body=body), into)
        return said

    async def _patiently(self, call: "_Call", into: type[T]) -> tuple[int, T]:
        """Repeat a call until it is answered; every call of this client may be repeated."""
        backoff = Backoff()
        while True:
            pause = 0.0
            try:
                answer = await self._transfers.request(
                    call.method, BASE + call.target, call.body, kind=call.kind, timeout=TRANSFER_TIMEOUT
                )
                if answer.status < 300 or answer.status in call.also:
                    return answer.status, codec.decode(answer.body, into)
                _raise_if_final(answer)
                pause = _retry_after(answer)
            except (Unreachable, Malformed):
                pass  # nothing, or nothing that the control plane would say: somebody else answers while it is away
            await asyncio.sleep(backoff.pause(pause))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    method: str
    target: str
    body: bytes = b""
    kind: str = "application/json"
    also: tuple[int, ...] = ()  # further statuses that carry an answer


def _raise_if_final(answer: Answer) -> None:
    if answer.status >= 500 or answer.status in BUSY:
        return
    if answer.status in {401, 410}:
        raise ControlEnded(_problem(answer).code)
    raise _problem(answer)


def _retry_after(answer: Answer) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


def _problem(answer: Answer) -> ControlRefused:
    """Read a problem document, or make one up from the status alone."""
    try:
        return _refused(answer.status, codec.decode(answer.body, dict[str, Any]))
    except Malformed:
        return _refused(answer.status, {})


def _refused(status: int, said: dict[str, Any]) -> ControlRefused:
    code = str(said.get("code") or f"http_{status}")[:100]
    return ControlRefused(status, code, str(said.get("detail") or code)[:1000])
