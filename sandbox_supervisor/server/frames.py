"""Cut snapshots and pages of events into frames that a browser may be sent."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import Envelope
from sandbox_supervisor.protocol.messages import Snapshot
from sandbox_supervisor.protocol.stream import FRAME_LIMIT, Credit, EventsFrame, Merged, SnapshotFrame, SnapshotReason
from sandbox_supervisor.server.merge import Page

ENVELOPE_LIMIT = FRAME_LIMIT - 8 * 1024  # leaves room for the frame around it
LISTS = ("nodes", "attempts", "requests")
FIELD_LIMIT = 8 * 1024  # of a field that stays in an item that is too big for a frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    data: bytes
    upto: int
    events: int = 0
    part: int = 0


def events_frame(page: Page, *, epoch: str, prev: int, upto: int, room: Credit) -> Frame | None:
    """Give one frame with as many events as limit and room allow, at least one.

    It covers everything up to ``upto`` when all fitted, else up to its last event. A page with merged events goes whole
    or not at all (None): their parts lie among the others, so that no cut through it would be a place to resume.
    """
    notes = {note.last: note for note in page.merged}
    encoded: list[bytes] = []
    merged: list[Merged] = []
    budget = min(ENVELOPE_LIMIT, room.bytes)
    for event in page.events:
        data, note = _encoded(event, notes.get(event.seq))
        budget -= len(data) + 64 * (note is not None)
        if encoded and (budget < 0 or len(encoded) >= room.events):
            if page.merged:
                return None
            upto = page.events[len(encoded) - 1].seq
            break
        encoded.append(data)
        merged.extend([note] if note else [])
    head = {"type": "events", "epoch": epoch, "prev": prev, "upto": upto, "merged": merged}
    text = codec.encode(head)[:-1] + b',"events":[' + b",".join(encoded) + b"]}"
    return Frame(data=text, upto=upto, events=len(encoded))


def passed_over(*, epoch: str, prev: int, upto: int) -> Frame:
    """Give a frame without events: nothing up to ``upto`` matched the filter."""
    return Frame(data=codec.encode(EventsFrame(epoch=epoch, prev=prev, upto=upto, events=())), upto=upto)


def _encoded(event: Envelope, note: Merged | None) -> tuple[bytes, Merged | None]:
    data = codec.encode(event)
    if len(data) <= ENVELOPE_LIMIT:
        return data, note
    first = note.first if note else event.seq
    note = Merged(first=first, last=event.seq, events=note.events if note else 1, dropped_bytes=len(data))
    return codec.encode(replace(event, data={"oversize": len(data)})), note


def snapshot_frames(snapshot: Snapshot, *, head: int, reason: SnapshotReason) -> list[Frame]:
    """Give the parts of a snapshot; the first carries everything but the lists, and all are below the frame limit."""
    state = codec.plain(snapshot)
    items = [(name, item) for name in LISTS for item in state.pop(name)]
    states = list(_shares(state, items))
    return [
        Frame(
            data=codec.encode(
                SnapshotFrame(
                    epoch=snapshot.epoch,
                    seq=snapshot.seq,
                    head=head,
                    reason=reason,
                    part=part,
                    parts=len(states),
                    state=share,
                )
            ),
            upto=snapshot.seq,
            part=part,
        )
        for part, share in enumerate(states, start=1)
    ]


def _shares(state: dict[str, Any], items: list[tuple[str, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    share: dict[str, Any] = {**_slim(state)[0], **{name: [] for name in LISTS}}
    size = len(codec.encode(share))
    for name, whole in items:
        item, length = _slim(whole)
        if size + length > ENVELOPE_LIMIT:
            yield share
            share, size = {key: [] for key in LISTS}, 0
        share[name].append(item)
        size += length + 1
    yield share


def _slim(item: dict[str, Any]) -> tuple[dict[str, Any], int]:
    length = len(codec.encode(item))
    if length <= ENVELOPE_LIMIT // 2:
        return item, length
    slim = {key: value for key, value in item.items() if len(codec.encode(value)) <= FIELD_LIMIT}
    slim["oversize"] = length
    return slim, len(codec.encode(slim))
