from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_supervisor.protocol.units import read_duration, read_size, show_duration, show_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30), ("10m", 600), ("24h", 86400), ("3d", 259200), ("1w", 604800), ("1h30m", 5400), ("1.5h", 5400),
        ("250ms", 0.25), ("0s", 0), ("PT10M", 600), ("P1DT2H", 93600), ("PT0.5S", 0.5), ("P1W", 604800),
        ("366d", 31622400),
    ],
)  # fmt: skip
def test_durations_are_read(text, seconds):
    assert read_duration(text).total_seconds() == seconds


@pytest.mark.parametrize(
    "text",
    ["", "10", "m", "10 m", "-5m", "5min", "P", "PT", "P1Y", "P1M", "1h 30m", "367d", "１0m", "1e3s", "9" * 70 + "s"],
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError):
        read_duration(text)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=366)))
def test_a_duration_reads_back_to_the_millisecond(duration):
    assert abs(read_duration(show_duration(duration)) - duration) < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1", 1), ("512Mi", 2**29), ("1.5Gi", 3 * 2**29), ("10G", 10**10), ("3k", 3000), ("1Ti", 2**40)],
)
def test_sizes_are_read(text, size):
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "Mi", "1 Gi", "-1", "1.5", "1KB", "1mi", "0.0001k", "9" * 30, "2000000Ti"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError):
        read_size(text)


@given(st.integers(min_value=0, max_value=2**53))
def test_a_size_reads_back_exactly(size):
    assert read_size(show_size(size)) == size
