"""Moments and durations, in the words that the page's own clock goes on with."""

from datetime import UTC, datetime, timedelta


def moment(label: str | datetime | None) -> datetime | None:
    """Read an RFC 3339 label of the supervisor; None for nothing or nonsense. A moment stays what it is."""
    try:
        return datetime.fromisoformat(label).astimezone(UTC) if isinstance(label, str) else label
    except ValueError:
        return None


def duration(value: timedelta | float | None) -> str:
    """Write a duration as ``0:42``, ``14:02``, ``1 h 03``, ``3 d`` or ``3 d 4 h``; nothing for None."""
    if value is None:
        return ""
    seconds = max(0, int(value.total_seconds() if isinstance(value, timedelta) else value))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if hours == 0:
        return f"{minutes}:{seconds % 60:02d}"
    if days == 0:
        return f"{hours} h {minutes % 60:02d}"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"


def took(began: str | None, ended: str | None) -> str:
    """Write how long something took, as ``0.3 s`` below ten seconds; nothing where an end is missing."""
    first, last = moment(began), moment(ended)
    if first is None or last is None:
        return ""
    seconds = (last - first).total_seconds()
    if seconds < 0.05:
        return "<0.1 s"
    return f"{seconds:.1f} s" if seconds < 9.95 else duration(seconds)
