"""What attempts print: whole in files up to a cap, and as events small enough for a stream."""

import os
from pathlib import Path

from sandbox_supervisor.graph.rows import NewEvent
from sandbox_supervisor.log import crashpoints
from sandbox_supervisor.log.crashpoints import Point
from sandbox_supervisor.log.streamfile import Slice, StreamFile
from sandbox_supervisor.log.window import Window
from sandbox_supervisor.protocol.events import EventKind

STREAMS = ("stdout", "stderr")
INLINE = 16 * 1024  # bytes of text that an event itself carries
WINDOW = 256 * 1024  # bytes that one event stands for, at most
HEAD_SHARE = 8  # of the cap, one eighth is kept from the beginning: 8 MiB of 64


class AttemptOutput:
    """The streams of one attempt. Bytes are in the file when ``write`` returns; events gather until ``flush``."""

    def __init__(self, folder: Path, attempt: str, *, cap: int) -> None:
        share = cap // len(STREAMS)
        head = min(cap // HEAD_SHARE, share // 2)
        self._files = {name: StreamFile(folder / f"{attempt}.{name}", head=head, cap=share) for name in STREAMS}
        self._windows = {name: Window(self._files[name].produced) for name in STREAMS}
        self._closed = False

    def write(self, stream: str, payload: bytes) -> list[NewEvent]:
        """Store bytes; give the events that are full. Raises OSError when there is no space; repeat it then."""
        self._files[stream].append(payload)
        crashpoints.hit(Point.OUTPUT_WRITTEN)
        events = []
        window = self._windows[stream]
        for at in range(0, len(payload), WINDOW):
            window.add(payload[at : at + WINDOW])
            if window.size >= WINDOW:
                events += self._take(stream, last=False)
        return events

    def flush(self) -> list[NewEvent]:
        """Give an event for each stream that has gathered something; call it about every 100 ms."""
        return [event for stream in STREAMS for event in self._take(stream, last=False)]

    def close(self) -> list[NewEvent]:
        """Give the last events: what is left, and once how much the cap has dropped. A second call gives nothing."""
        if self._closed:
            return []
        self._closed = True
        events = [event for stream in STREAMS for event in self._take(stream, last=True)]
        dropped = {name: file.dropped for name, file in self._files.items() if file.dropped}
        if dropped:
            data = {"dropped_bytes": sum(dropped.values()), "streams": dropped}
            events.append(NewEvent(kind=EventKind.OUTPUT_TRUNCATED, data=data))
        for file in self._files.values():
            file.close()
        return events

    def _take(self, stream: str, *, last: bool) -> list[NewEvent]:
        taken = self._windows[stream].take(last=last, inline=INLINE)
        if taken is None:
            return []
        data = {"stream": stream, **taken}
        if "text" not in data:
            data["file"] = self._files[stream].path.name
        return [NewEvent(kind=EventKind.OUTPUT, data=data)]


class OutputStore:
    """The folder of all attempts' streams."""

    def __init__(self, folder: Path, *, cap: int) -> None:
        self._folder = folder
        self._cap = cap
        folder.mkdir(mode=0o700, exist_ok=True)

    def open(self, attempt: str) -> AttemptOutput:
        """Begin (or, after a crash, go on with) an attempt's output."""
        return AttemptOutput(self._folder, _checked(attempt), cap=self._cap)

    def read(self, attempt: str, stream: str, offset: int, length: int) -> Slice:
        """Read bytes by their place in what the stream produced, at most 1 MiB.

        A read that begins in the dropped range begins after it; the slice says where. Raises FileNotFoundError for a
        stream that was never written.
        """
        if stream not in STREAMS:
            raise FileNotFoundError(stream)
        share = self._cap // len(STREAMS)
        file = StreamFile(
            self._folder / f"{_checked(attempt)}.{stream}",
            head=min(self._cap // HEAD_SHARE, share // 2),
            cap=share,
            readonly=True,
        )
        try:
            return file.read(offset, min(length, 1024 * 1024))
        finally:
            file.close()

    def used(self) -> int:
        """Give the bytes on disk."""
        return sum(entry.stat().st_blocks * 512 for entry in os.scandir(self._folder))


def _checked(attempt: str) -> str:
    if "/" in attempt or "\0" in attempt or attempt.startswith("."):
        raise FileNotFoundError(attempt)
    return attempt
