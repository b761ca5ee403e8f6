"""When each sweep runs, and what would stay undone without it. Plain values: beat reads them before Django is up."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Entry:
    period: timedelta
    reason: str


TIMETABLE: Mapping[str, Entry] = {
    "provision": Entry(timedelta(seconds=15), "creations that the queue forgot or whose answer was lost"),
    "withdraw": Entry(timedelta(seconds=5), "secrets that are still at a provider although they have served"),
    "observe": Entry(timedelta(seconds=10), "sandboxes that vanished or failed"),
    "contact": Entry(timedelta(seconds=5), "silence, start deadlines, deletions that wait for a snapshot"),
    "deliver": Entry(timedelta(seconds=15), "deliveries that the queue forgot or that are due again"),
    "reclaim": Entry(timedelta(seconds=60), "sandboxes whose time is over"),
    "outbox": Entry(timedelta(seconds=5), "history that pages were not told of"),
    "leftovers": Entry(timedelta(seconds=60), "answers, leases and uploads that have served or never will"),
    "epoch": Entry(timedelta(seconds=30), "restored backups: each step makes every earlier one known as old"),
    "tick": Entry(timedelta(seconds=30), "proof that worker and queue are alive"),
}
