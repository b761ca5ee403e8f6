"""Merge text events of one source when a subscription runs above its budget. Pure; no event is ever left out unnamed.

Order is kept: within one attempt only neighbours of the same source are joined, and a joined event takes the place and
seq of its last part.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox_supervisor.protocol.events import Envelope, EventKind
from sandbox_supervisor.protocol.stream import Merged

MERGED_TEXT = 64 * 1024  # characters; a joined event grows no further
KEPT = 2 * 1024  # characters of head and of tail that stay when text is abridged


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Events in order of seq, and which of them stand for more than themselves."""

    events: tuple[Envelope, ...]
    merged: tuple[Merged, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Group:
    key: tuple[str, str] | None
    parts: list[Envelope] = field(default_factory=list)
    size: int = 0

    def takes(self, key: tuple[str, str] | None, event: Envelope) -> bool:
        return key is not None and key == self.key and self.size + len(_text(event)) <= MERGED_TEXT

    def add(self, event: Envelope) -> None:
        self.parts.append(event)
        self.size += len(_text(event))


def merge(events: Iterable[Envelope], *, abridge: bool) -> Page:
    """Join neighbouring texts of the same source; with ``abridge`` also cut the middle out of long ones."""
    open_groups: dict[str | None, _Group] = {}
    groups: list[_Group] = []
    for event in events:
        key = _source(event)
        group = open_groups.get(event.attempt)
        if group is None or not group.takes(key, event):
            group = open_groups[event.attempt] = _Group(key=key)
            groups.append(group)
        group.add(event)
    joined = sorted((_join(group, abridge=abridge) for group in groups), key=lambda pair: pair[0].seq)
    return Page(events=tuple(event for event, _ in joined), merged=tuple(note for _, note in joined if note))


def _source(event: Envelope) -> tuple[str, str] | None:
    """Name what a text belongs to; None for an event that stands alone."""
    match event.kind:
        case EventKind.SESSION_MESSAGE | EventKind.SESSION_THOUGHT if isinstance(event.data.get("text"), str):
            return event.kind, f"{event.data.get('id')}/{event.data.get('role')}"
        case EventKind.OUTPUT if isinstance(event.data.get("text"), str) and "file" not in event.data:
            return event.kind, str(event.data.get("stream"))
        case _:
            return None


def _text(event: Envelope) -> str:
    text = event.data.get("text")
    return text if isinstance(text, str) else ""


def _join(group: _Group, *, abridge: bool) -> tuple[Envelope, Merged | None]:
    first, last = group.parts[0], group.parts[-1]
    if group.key is None:
        return last, None
    text, dropped = "".join(map(_text, group.parts)), 0
    if abridge:
        text, dropped = _abridged(text)
    if len(group.parts) == 1 and not dropped:
        return last, None
    data: dict[str, Any] = {**last.data, "text": text}
    note = Merged(first=first.seq, last=last.seq, events=len(group.parts), dropped_bytes=dropped)
    return replace(last, data=data), note


def _abridged(text: str) -> tuple[str, int]:
    if len(text) <= 2 * KEPT + 1:
        return text, 0
    return f"{text[:KEPT]}…{text[-KEPT:]}", len(text[KEPT:-KEPT].encode(errors="replace"))
