"""The event stream as it travels: from supervisor to control plane, and unchanged from there to the browser.

Frames are JSON texts with a ``type``. An ``events`` frame covers every seq in ``(prev, upto]``: what is not among its
events did not match the filter or was merged into a later one, and then ``merged`` names the range. A client that has
applied ``upto`` resumes there; a frame whose ``prev`` is not the last ``upto`` is a gap.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Annotated, Any

import msgspec

from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.events import Envelope

SUBPROTOCOL = "console.v1"
HEARTBEAT = 15.0  # seconds between frames that carry the head
PATIENCE = 30.0  # seconds without an ack while frames are outstanding
FRAME_LIMIT = 256 * 1024  # bytes of one frame to a browser
MESSAGE_LIMIT = 1024 * 1024 - 1  # bytes of one message, either way
CONTROL_LIMIT = 16 * 1024  # bytes of a subscribe or an ack
PAGE = 500  # events of one read
REPLAY = 10_000  # events that are replayed, except of chosen attempts; who is further behind gets a snapshot


class CloseCode(IntEnum):
    PROTOCOL = 4400
    UNAUTHENTICATED = 4401
    FORBIDDEN = 4403
    NOT_FOUND = 4404
    SLOW_CONSUMER = 4408
    RECLAIMED = 4410
    TOO_MANY = 4429
    FAILED = 4500  # a fault of ours
    NO_SANDBOX = 4503


class SnapshotReason(StrEnum):
    FIRST = "first"  # the client knew nothing
    EPOCH_CHANGED = "epoch_changed"  # forget everything
    SEQ_AHEAD = "seq_ahead"  # the client had seen a future that is lost
    TOO_FAR_BEHIND = "too_far_behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """``str()`` gives ``epoch:seq``, the resume token."""

    epoch: str
    seq: Annotated[int, msgspec.Meta(ge=0)]

    def __str__(self) -> str:
        return f"{self.epoch}:{self.seq}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Read ``str()`` back. Raises Malformed."""
        epoch, colon, seq = text.rpartition(":")
        if not (epoch and colon and len(seq) <= 18 and seq.isascii() and seq.isdigit()):
            raise Malformed("a position is <epoch>:<seq>")
        return cls(epoch=epoch, seq=int(seq))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What a client wants to see; an empty set restricts nothing."""

    nodes: frozenset[str] = frozenset()
    attempts: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    def matches(self, event: Envelope) -> bool:
        return (
            (not self.nodes or event.node in self.nodes)
            and (not self.attempts or event.attempt in self.attempts)
            and (not self.kinds or event.kind in self.kinds)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """How much may be under way without an ack."""

    events: int = 256
    bytes: int = 1024 * 1024

    def bounded(self, most: "Credit") -> "Credit":
        """Give a credit that is neither useless nor above ``most``."""
        return Credit(events=min(max(self.events, 1), most.events), bytes=min(max(self.bytes, 1), most.bytes))


MOST_CREDIT = Credit(events=2_000, bytes=4 * 1024 * 1024)


# --- client → server -------------------------------------------------------------------------------------------------


class Subscribe(msgspec.Struct, frozen=True, kw_only=True, tag="subscribe"):
    """Start, or start anew: what was under way before no longer counts."""

    since: Position | None = None
    filter: Filter | None = None
    credit: Credit = Credit()


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag="ack"):
    """Everything up to ``seq`` has been dealt with. A part of a snapshot is acknowledged by its seq and part."""

    seq: int
    part: int | None = None


ClientFrame = Subscribe | Ack


def read_client_frame(text: str | bytes) -> Subscribe | Ack:
    """Read what a client sent. Raises Malformed."""
    if len(text) > CONTROL_LIMIT:
        raise Malformed(f"a message of this direction has at most {CONTROL_LIMIT} bytes")
    try:
        return msgspec.json.decode(text, type=ClientFrame)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from None


# --- server → client -------------------------------------------------------------------------------------------------


class Resume(msgspec.Struct, frozen=True, kw_only=True, tag="resume"):
    epoch: str
    seq: int
    head: int


class SnapshotFrame(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot"):
    """One part of a snapshot; the lists in ``state`` (nodes, attempts, requests) are to be joined over all parts."""

    epoch: str
    seq: int
    head: int
    reason: SnapshotReason
    part: int
    parts: int
    state: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """``events`` of one source, the first with seq ``first``, became the event with seq ``last``."""

    first: int
    last: int
    events: int
    dropped_bytes: int = 0  # of text, cut out of the middle; the events can still be read one by one


class EventsFrame(msgspec.Struct, frozen=True, kw_only=True, tag="events"):
    epoch: str
    prev: int
    upto: int
    events: tuple[Envelope, ...]
    merged: tuple[Merged, ...] = ()


class HeartbeatFrame(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    epoch: str
    head: int


class ErrorFrame(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """Sent before a close, or alone when the connection stays."""

    code: str
    detail: str
    facts: dict[str, Any] = {}


class Health(StrEnum):
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    WAITING = "waiting"  # the sandbox is not there yet


class HealthFrame(msgspec.Struct, frozen=True, kw_only=True, tag="health"):
    """From the control plane: how it stands with the sandbox. The connection stays open meanwhile."""

    state: Health
    detail: str = ""


class TaskFrame(msgspec.Struct, frozen=True, kw_only=True, tag="task"):
    """From the control plane: the task's record changed; a hint to fetch it. Hints may be lost."""


ServerFrame = Resume | SnapshotFrame | EventsFrame | HeartbeatFrame | ErrorFrame | HealthFrame | TaskFrame


def read_server_frame(text: str | bytes) -> ServerFrame:
    """Read what a server sent. Raises Malformed."""
    try:
        return msgspec.json.decode(text, type=ServerFrame)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    upto: int
    part: int  # of a snapshot, else 0
    events: int
    bytes: int


@dataclass(slots=True, kw_only=True)
class Window:
    """What has been sent and not yet acknowledged, against the credit. Times are monotonic seconds of the caller."""

    credit: Credit
    outstanding: deque[Sent] = field(default_factory=deque)
    events: int = 0
    bytes: int = 0
    upto: int = 0  # of the newest frame sent
    acked: int = 0
    since: float = 0.0  # when the oldest outstanding frame was sent, or the last ack came

    def open(self) -> bool:
        """Whether another frame may go; with nothing under way one of any size may, lest an event block for ever."""
        return not self.outstanding or (self.events < self.credit.events and self.bytes < self.credit.bytes)

    def room(self) -> Credit:
        """Give what is left of the credit, at least one event."""
        return Credit(events=max(self.credit.events - self.events, 1), bytes=max(self.credit.bytes - self.bytes, 1))

    def sent(self, upto: int, *, events: int, size: int, now: float, part: int = 0) -> None:
        if not self.outstanding:
            self.since = now
        self.outstanding.append(Sent(upto=upto, part=part, events=events, bytes=size))
        self.events += events
        self.bytes += size
        self.upto = upto

    def ack(self, ack: Ack, *, now: float) -> None:
        """Settle what ``ack`` covers; one that covers nothing is no sign of life. Raises Malformed for the unsent."""
        if ack.seq > self.upto:
            raise Malformed("an ack for what was not sent")
        while self.outstanding and self._covers(ack, self.outstanding[0]):
            settled = self.outstanding.popleft()
            self.events -= settled.events
            self.bytes -= settled.bytes
            self.acked, self.since = ack.seq, now

    def overdue(self, now: float, patience: float = PATIENCE) -> bool:
        """Whether the client has let ``patience`` seconds pass without an ack."""
        return bool(self.outstanding) and now - self.since > patience

    @staticmethod
    def _covers(ack: Ack, sent: Sent) -> bool:
        return sent.upto < ack.seq or (sent.upto == ack.seq and (ack.part is None or sent.part <= ack.part))
