"""One subscriber's walk along the log: history and live are the same paged query, and nothing is kept between reads."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import Envelope
from sandbox_supervisor.protocol.stream import (
    MOST_CREDIT,
    PAGE,
    REPLAY,
    Ack,
    Filter,
    HeartbeatFrame,
    Resume,
    SnapshotReason,
    Subscribe,
    Window,
)
from sandbox_supervisor.server.facade import Supervisor
from sandbox_supervisor.server.frames import Frame, events_frame, passed_over, snapshot_frames
from sandbox_supervisor.server.merge import Page, merge
from sandbox_supervisor.server.pace import PAUSE, Pace
from sandbox_supervisor.server.tempo import Tempo

Send = Callable[[bytes], Awaitable[None]]


class SlowConsumer(Exception):
    """The client let the patience pass without an ack, or could not even be written to. ``acked`` is where it stood."""

    def __init__(self, acked: int) -> None:
        super().__init__(f"nothing acknowledged after {acked}")
        self.acked = acked


class Subscription:
    """``run`` serves one subscribe until it is cancelled; ``ack`` may be called meanwhile."""

    def __init__(self, supervisor: Supervisor, wish: Subscribe, send: Send, tempo: Tempo) -> None:
        self._supervisor = supervisor
        self._wish = wish
        self._filter = wish.filter or Filter()
        self._send = send
        self._tempo = tempo
        self._acked = asyncio.Event()
        self._cursor = 0  # read up to here
        self._told = 0  # the client was told up to here
        self._beat_at = time.monotonic() + tempo.heartbeat
        self._pace = Pace(now=time.monotonic())
        self.window = Window(credit=wish.credit.bounded(MOST_CREDIT))

    def ack(self, ack: Ack) -> None:
        """Take an ack. Raises Malformed for one of what was never sent."""
        self.window.ack(ack, now=time.monotonic())
        self._acked.set()

    async def run(self) -> None:
        """Answer with resume or snapshot, then send events. Raises SlowConsumer."""
        await self._begin()
        while True:
            await self._beat()
            if not self.window.open():
                await self._wait_for_room()
                continue
            await self._gather()
            events = await self._supervisor.events(self._cursor, PAGE)
            if events:
                await self._pass_on(events)
            else:
                await self._supervisor.wait_past(self._cursor, self._until_due())

    # --- the beginning ---

    async def _begin(self) -> None:
        head, since = self._supervisor.head().seq, self._wish.since
        reason = self._why_snapshot(head)
        if reason is None and since is not None:
            self._cursor = self._told = self.window.upto = since.seq
            await self._write(codec.encode(Resume(epoch=self._supervisor.epoch, seq=since.seq, head=head)))
            return
        await self._send_snapshot(reason or SnapshotReason.FIRST)

    def _why_snapshot(self, head: int) -> SnapshotReason | None:
        since = self._wish.since
        if since is None:
            return SnapshotReason.FIRST
        if since.epoch != self._supervisor.epoch:
            return SnapshotReason.EPOCH_CHANGED
        if since.seq > head:
            return SnapshotReason.SEQ_AHEAD
        if head - since.seq > REPLAY and not self._filter.attempts:
            return SnapshotReason.TOO_FAR_BEHIND
        return None

    async def _send_snapshot(self, reason: SnapshotReason) -> None:
        snapshot = await self._supervisor.snapshot()
        self._cursor = self._told = snapshot.seq
        for frame in snapshot_frames(snapshot, head=self._supervisor.head().seq, reason=reason):
            while not self.window.open():
                await self._beat()
                await self._wait_for_room()
            await self._emit(frame)

    # --- events ---

    async def _gather(self) -> None:
        """Let events gather for a moment while the budget is used up, so that they can be merged."""
        self._pace.refill(time.monotonic())
        if self._pace.too_many_events() or self._pace.too_many_bytes():
            await asyncio.sleep(PAUSE)
            self._pace.refill(time.monotonic())

    async def _pass_on(self, events: list[Envelope]) -> None:
        """Send what the window takes of these events; the rest is read again."""
        end = events[-1].seq
        left = [event for event in events if self._filter.matches(event)]
        while left and self.window.open():
            frame, count = self._frame(left, end)
            left = left[count:]
            await self._emit(frame)
            self._pace.spend(frame.events, len(frame.data))
            self._cursor = self._told = frame.upto
        if not left:
            self._cursor = end

    def _frame(self, events: list[Envelope], end: int) -> tuple[Frame, int]:
        """Give a frame and how many of the events it accounts for: fewer at a time when merged ones do not fit."""
        count = len(events)
        while True:
            page = self._condense(events[:count])
            upto = end if count == len(events) else events[count - 1].seq
            frame = events_frame(
                page, epoch=self._supervisor.epoch, prev=self._told, upto=upto, room=self.window.room()
            )
            if frame is not None:
                return frame, count if page.merged else frame.events
            count = max(count // 2, 1)

    def _condense(self, events: list[Envelope]) -> Page:
        if self._pace.too_many_events() or self._pace.too_many_bytes():
            return merge(events, abridge=self._pace.too_many_bytes())
        return Page(events=tuple(events))

    # --- writing and waiting ---

    async def _emit(self, frame: Frame) -> None:
        now = time.monotonic()
        self.window.sent(frame.upto, events=frame.events, size=len(frame.data), now=now, part=frame.part)
        await self._write(frame.data)

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._tempo.patience):
                await self._send(data)
        except TimeoutError:
            raise SlowConsumer(self.window.acked) from None

    async def _beat(self) -> None:
        """Send the head when it is time; first name what a filter passed over, so that the client resumes near it."""
        now = time.monotonic()
        if self.window.overdue(now, self._tempo.patience):
            raise SlowConsumer(self.window.acked)
        if now < self._beat_at:
            return
        self._beat_at = now + self._tempo.heartbeat
        epoch = self._supervisor.epoch
        if self._cursor > self._told:
            await self._emit(passed_over(epoch=epoch, prev=self._told, upto=self._cursor))
            self._told = self._cursor
        await self._write(codec.encode(HeartbeatFrame(epoch=epoch, head=self._supervisor.head().seq)))

    async def _wait_for_room(self) -> None:
        """Return after an ack, or when a heartbeat or the end of patience is due."""
        self._acked.clear()
        try:
            async with asyncio.timeout(self._until_due()):
                await self._acked.wait()
        except TimeoutError:
            return

    def _until_due(self) -> float:
        """Give the seconds until the next heartbeat or the end of the client's patience."""
        due = self._beat_at
        if self.window.outstanding:
            due = min(due, self.window.since + self._tempo.patience + 0.01)
        return max(due - time.monotonic(), 0.0)
