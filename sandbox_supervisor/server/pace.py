"""The budget of a subscription: so many events and bytes a second, with some saved up for bursts."""

from dataclasses import dataclass

EVENTS_PER_SECOND = 200.0
BYTES_PER_SECOND = 2_000_000.0
BURST = 2.0  # seconds of budget that may be saved up
PAUSE = 0.025  # seconds in which events gather while the budget is used up


@dataclass(slots=True, kw_only=True)
class Pace:
    """Two buckets that fill with time (monotonic seconds of the caller) and may go into debt by one page."""

    now: float
    events: float = EVENTS_PER_SECOND * BURST
    bytes: float = BYTES_PER_SECOND * BURST

    def refill(self, now: float) -> None:
        passed, self.now = max(now - self.now, 0.0), now
        self.events = min(self.events + passed * EVENTS_PER_SECOND, EVENTS_PER_SECOND * BURST)
        self.bytes = min(self.bytes + passed * BYTES_PER_SECOND, BYTES_PER_SECOND * BURST)

    def spend(self, events: int, size: int) -> None:
        """Take what was sent; a debt is at most one second, so that a long replay does not slow down what follows."""
        self.events = max(self.events - events, -EVENTS_PER_SECOND)
        self.bytes = max(self.bytes - size, -BYTES_PER_SECOND)

    def too_many_events(self) -> bool:
        return self.events <= 0

    def too_many_bytes(self) -> bool:
        return self.bytes <= 0
