"""Bring an attempt's output into files and events: short pieces as text, long ones by reference with head and tail."""

import codecs
import hashlib
from typing import Any

from sandbox_supervisor.graph.rows import AttemptId, NewEvent
from sandbox_supervisor.log import Outputs
from sandbox_supervisor.protocol.events import EventKind

INLINE = 16 * 1024  # bytes
EXCERPT = 2 * 1024  # bytes of head and tail in the event of a long piece


class OutputEvents:
    """Everything goes to the attempt's file; events carry short text. Text splits at code points only."""

    def __init__(self, store: Outputs, attempt: AttemptId) -> None:
        self._store = store
        self._attempt = attempt
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def new_event(self, kind: EventKind, data: dict[str, Any]) -> NewEvent:
        """Give an event of this attempt."""
        return NewEvent(
            kind=kind,
            node=self._attempt.node,
            generation=self._attempt.generation,
            attempt=str(self._attempt),
            data=data,
        )

    async def write(self, stream: str, payload: bytes) -> list[NewEvent]:
        """Store a piece of output and give the events that show it."""
        offset = await self._store.append(str(self._attempt), stream, payload)
        if len(payload) > INLINE:
            self._decoders.pop(stream, None)
            return [self.new_event(EventKind.OUTPUT, self._reference(stream, payload, offset))]
        text = self._decoder(stream).decode(payload)
        return [self.new_event(EventKind.OUTPUT, {"stream": stream, "text": text})] if text else []

    async def close(self) -> list[NewEvent]:
        """Give what is left at the end: half a character, and how much the cap has dropped."""
        events = []
        for stream, decoder in self._decoders.items():
            if text := decoder.decode(b"", final=True):
                events.append(self.new_event(EventKind.OUTPUT, {"stream": stream, "text": text}))
        for stream in ("stdout", "stderr"):
            if dropped := self._store.dropped(str(self._attempt), stream):
                data = {"stream": stream, "dropped_bytes": dropped}
                events.append(self.new_event(EventKind.OUTPUT_TRUNCATED, data))
        return events

    def _decoder(self, stream: str) -> codecs.IncrementalDecoder:
        if stream not in self._decoders:
            self._decoders[stream] = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return self._decoders[stream]

    def _reference(self, stream: str, payload: bytes, offset: int) -> dict[str, Any]:
        return {
            "stream": stream,
            "file": f"{self._attempt}.{stream}",
            "offset": offset,
            "length": len(payload),
            "digest": f"sha256:{hashlib.sha256(payload).hexdigest()}",
            "head": payload[:EXCERPT].decode("utf-8", "replace"),
            "tail": payload[-EXCERPT:].decode("utf-8", "replace"),
        }
