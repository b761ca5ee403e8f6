"""Durations and sizes as people write them: ``45m``, ``1h30m``, ``P1DT2H``, ``512Mi``."""

import re
from datetime import timedelta

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.ASCII)
_ISO = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.ASCII
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T|)", re.ASCII)
LONGEST = timedelta(days=366)
LARGEST = 2**60
DURATION_HINT = "write 30s, 10m, 1h30m, 24h, 3d or an ISO 8601 duration such as PT10M"
SIZE_HINT = "write 512Mi, 2Gi, 10G or a number of bytes"


def read_duration(text: str) -> timedelta:
    """Read ``30s``, ``1h30m`` or ``PT10M``. Raises ValueError for anything else, and beyond 366 days."""
    if len(text) > 64:
        raise ValueError("this is no duration")
    if _DURATION.fullmatch(text):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    elif (match := _ISO.fullmatch(text)) and any(match.groupdict().values()):
        seconds = sum(float(number) * _SECONDS[unit] for unit, number in match.groupdict(default="0").items())
    else:
        raise ValueError("this is no duration")
    if seconds > LONGEST.total_seconds():
        raise ValueError(f"a duration is at most {LONGEST.days} days")
    return timedelta(seconds=seconds)


def show_duration(duration: timedelta) -> str:
    """Give the shortest text that ``read_duration`` reads back, to the millisecond."""
    rest = round(duration.total_seconds() * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def read_size(text: str) -> int:
    """Read ``512Mi``, ``10G`` or a number of bytes. Raises ValueError for anything else."""
    match = _SIZE.fullmatch(text) if len(text) <= 32 else None
    if match is None:
        raise ValueError("this is no size")
    size = float(match[1]) * _BYTES[match[2]]
    if size > LARGEST or size != int(size):
        raise ValueError("a size is a whole number of bytes")
    return int(size)


def show_size(size: int) -> str:
    """Give the shortest text that ``read_size`` reads back exactly."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return str(size)
