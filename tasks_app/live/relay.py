"""Between a browser and a supervisor: frames pass unchanged, credits run end to end, a cut upstream is joined again.

Nothing is kept but the browser's wish, its position, and what it has not acknowledged.
"""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NoReturn

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from sandbox_supervisor.protocol import codec, stream
from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.stream import (
    Ack,
    Credit,
    Health,
    HealthFrame,
    Position,
    Subscribe,
    Window,
)
from tasks_app.live.dial import Upstream
from tasks_app.live.errors import NotYet, Unreachable
from tasks_app.live.open_stream import open_stream

PATIENCE = stream.PATIENCE
BROWSER_CREDIT = Credit(events=1_000, bytes=1024 * 1024)  # the most that one socket may have under way
QUICKEST = 0.25  # seconds before the first further try
SLOWEST = 5.0
STARTS = 60  # subscribes of one socket in one minute
SILENCE = 45.0  # seconds without any frame, heartbeats included, after which an upstream counts as cut

PASSING = frozenset({"resume", "snapshot", "events", "heartbeat"})

Dial = Callable[[], Awaitable[Upstream]]  # raises NotYet, NoSandbox, Reclaimed
Show = Callable[[str], Awaitable[None]]


class Restless(Exception):
    """The browser starts anew more often than any page has reason to; each start costs the supervisor a snapshot."""


class SlowBrowser(Exception):
    """The browser let its patience pass without an ack."""


class _Passing(msgspec.Struct, frozen=True):
    """As much of a frame as the relay needs to know."""

    type: str
    epoch: str = ""
    seq: int = 0
    part: int = 0
    parts: int = 0
    prev: int = 0
    upto: int = 0
    events: list[msgspec.Raw] = []


class Relay:
    """``run`` connects and passes frames on until cancelled; ``hear`` takes what the browser sends meanwhile."""

    def __init__(self, *, dial: Dial, show: Show) -> None:
        self._dial = dial
        self._show = show
        self._wished = asyncio.Event()
        self._acked = asyncio.Event()
        self._hurry = asyncio.Event()
        self._starts: deque[float] = deque(maxlen=STARTS)
        self._wish = Subscribe()
        self._position: Position | None = None  # up to which the browser was shown everything
        self._window = Window(credit=BROWSER_CREDIT)
        self._upstream: ClientConnection | None = None
        self._answered = False  # whether what comes belongs to the newest subscribe
        self._health: Health | None = None

    async def hear(self, frame: Subscribe | Ack) -> None:
        """Take a subscribe or an ack. Raises Malformed for an ack of what was never shown, Restless."""
        match frame:
            case Subscribe():
                self._count_start(time.monotonic())
                self._wish = msgspec.structs.replace(frame, credit=frame.credit.bounded(BROWSER_CREDIT))
                self._position = frame.since
                self._window = Window(credit=self._wish.credit)
                self._wished.set()
                self._acked.set()  # what was owed before is owed no more
                await self._subscribe()
            case Ack():
                self._window.ack(frame, now=time.monotonic())
                self._acked.set()
                if self._answered:
                    await self._send(frame)

    def _count_start(self, now: float) -> None:
        self._starts.append(now)
        if len(self._starts) == STARTS and now - self._starts[0] < 60.0:
            raise Restless(f"at most {STARTS} subscribes a minute")

    async def _first_wish(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._wished.wait()
        except TimeoutError:
            raise Malformed("no subscribe came") from None

    async def run(self) -> None:
        """Raises NoSandbox, Reclaimed, Malformed when no subscribe comes; a supervisor that is away is waited for."""
        await self._first_wish()
        pause = QUICKEST
        while True:
            began = time.monotonic()
            try:
                await self._connected()
            except (NotYet, Unreachable) as error:
                state = Health.WAITING if isinstance(error, NotYet) else Health.UNREACHABLE
                await self._tell(state, error.message)
            if time.monotonic() - began > SLOWEST:
                pause = QUICKEST
            await self._rest(pause)
            pause = min(pause * 2, SLOWEST)

    def look_again(self) -> None:
        """Try at once to connect, if it is not connected: the task has changed."""
        self._hurry.set()

    async def _rest(self, pause: float) -> None:
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):  # noqa: S311 (no secret)
                await self._hurry.wait()

    def watch(self) -> float:
        """Raise SlowBrowser when it is time; else give the seconds until to ask again."""
        now = time.monotonic()
        if self._window.overdue(now, PATIENCE):
            raise SlowBrowser
        return self._window.since + PATIENCE - now if self._window.outstanding else PATIENCE

    # --- upstream ---

    async def _connected(self) -> NoReturn:
        """Serve over one upstream connection until it ends. Raises NotYet, NoSandbox, Reclaimed, Unreachable."""
        upstream = await open_stream(await self._dial())
        try:
            await self._settled()
            self._upstream = upstream
            await self._subscribe()
            while True:
                await self._pass_on(await self._receive(upstream))
        except (ConnectionClosed, Malformed, UnicodeDecodeError, TimeoutError) as error:
            raise Unreachable("The connection to the sandbox was cut.", cause=str(error)) from error
        finally:
            self._upstream, self._answered = None, False
            await upstream.close()

    async def _receive(self, upstream: ClientConnection) -> bytes:
        async with asyncio.timeout(SILENCE):
            return await upstream.recv(decode=False)

    async def _settled(self) -> None:
        """Wait until the browser has dealt with all it was sent, so that a new full credit cannot exceed its own."""
        while self._window.outstanding:
            self._acked.clear()
            await self._acked.wait()

    async def _subscribe(self) -> None:
        self._answered = False
        await self._send(msgspec.structs.replace(self._wish, since=self._position))

    async def _send(self, frame: Subscribe | Ack) -> None:
        if self._upstream is None:
            return
        try:
            await self._upstream.send(codec.encode(frame).decode())
        except ConnectionClosed:
            return  # the receiving side finds out and connects anew

    # --- downstream ---

    async def _pass_on(self, data: bytes) -> None:
        frame = _look(data)
        if frame.type in {"resume", "snapshot"}:
            self._answered = True
            await self._tell(Health.REACHABLE, "")
        if not self._answered or frame.type not in PASSING:
            return  # of the subscribe before, or nothing that a supervisor has to say to a browser
        self._account(frame, len(data))
        await self._show(data.decode())

    def _account(self, frame: _Passing, size: int) -> None:
        """Note what the browser has to acknowledge and where it will stand. Raises Malformed beyond the credit."""
        match frame.type:
            case "resume":
                self._window.upto = max(self._window.upto, frame.seq)
            case "snapshot":
                self._charge(frame.seq, 0, size, frame.part)
                if frame.part == frame.parts:
                    self._position = Position(epoch=frame.epoch, seq=frame.seq)
            case "events":
                self._charge(frame.upto, len(frame.events), size, 0)
                self._position = Position(epoch=frame.epoch, seq=frame.upto)
            case _:
                return

    def _charge(self, upto: int, events: int, size: int, part: int) -> None:
        if events and not self._window.open():
            raise Malformed("the supervisor sends more than it was allowed to")
        self._window.sent(upto, events=events, size=size, now=time.monotonic(), part=part)

    async def _tell(self, state: Health, detail: str) -> None:
        """Show a change of health, once."""
        if state is not self._health:
            self._health = state
            await self._show(codec.encode(HealthFrame(state=state, detail=detail)).decode())


def _look(data: bytes) -> _Passing:
    try:
        return msgspec.json.decode(data, type=_Passing)
    except msgspec.MsgspecError as error:
        raise Malformed(str(error)) from None
