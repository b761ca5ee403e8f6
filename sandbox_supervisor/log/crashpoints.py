"""Named points at which a test lets the process die as by ``kill -9``.

``CAISSON_CRASH_AT=<point>`` or ``<point>:<nth>`` (counted from 1) in the environment enables one; without it a point
costs one comparison.
"""

import os
from enum import StrEnum

VARIABLE = "CAISSON_CRASH_AT"
EXIT_STATUS = 137


class Point(StrEnum):
    BEFORE_COMMIT = "before_commit"  # a group is written, the transaction still open
    AFTER_COMMIT = "after_commit"  # committed; anchor not yet written, nobody told
    AFTER_ANCHOR = "after_anchor"  # durable in every sense; nobody told
    BEFORE_CHECKPOINT = "before_checkpoint"
    AFTER_CHECKPOINT = "after_checkpoint"
    BEFORE_EFFECT = "before_effect"  # the intent is committed, the side effect not begun
    AFTER_EFFECT = "after_effect"  # the side effect is done, nothing known of it yet
    BEFORE_RECORD = "before_record"  # its outcome is known, not yet committed
    AFTER_RECORD = "after_record"  # its outcome is committed
    ARTEFACT_WRITTEN = "artefact_written"  # temporary file complete and synced
    ARTEFACT_RENAMED = "artefact_renamed"  # in place, folder not yet synced
    OUTPUT_WRITTEN = "output_written"  # bytes in the stream's file, no event yet


def names() -> list[str]:
    """List every crash point there is."""
    return [str(point) for point in Point]


class _Switch:
    """Which point is armed, and how often it has still to be passed."""

    def __init__(self, setting: str) -> None:
        name, _, nth = setting.partition(":")
        self.point = Point(name) if name else None
        self.left = int(nth or "1")


_switch = _Switch(os.environ.get(VARIABLE, ""))


def hit(point: Point) -> None:
    """Pass a point; die here if it is armed and its count is reached."""
    if point is not _switch.point:
        return
    _switch.left -= 1
    if _switch.left <= 0:
        os._exit(EXIT_STATUS)
