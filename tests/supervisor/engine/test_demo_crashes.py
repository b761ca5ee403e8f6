"""The shipped demo, its supervisor dead at every named point: the graph ends as if it had not been."""

from itertools import count, takewhile
from pathlib import Path

import pytest

from sandbox_supervisor.log import crashpoints
from tests.supervisor.engine import shipped_demo

# One passing of each point for every run of the suite, spread over the demo; the nightly series takes every one.
PLACES = {
    "before_commit": 3,
    "after_commit": 52,
    "after_anchor": 31,
    "before_checkpoint": 1,
    "after_checkpoint": 1,
    "before_effect": 12,
    "after_effect": 21,
    "before_record": 5,
    "after_record": 27,
    "artefact_written": 1,
    "artefact_renamed": 1,
    "output_written": 2,  # how much one chunk holds is a matter of time
}


def crash_once(folder: Path, point: str, nth: int) -> bool:
    """Run a demo that dies at the ``nth`` passing of ``point``, then again; say whether it came to it."""
    box = shipped_demo.sandbox(folder)
    try:
        first = box.run(CAISSON_CRASH_AT=f"{point}:{nth}")
        if first.code == 0:
            shipped_demo.check_end(box, first)
            return False
        assert first.code == crashpoints.EXIT_STATUS, first.errors
        shipped_demo.check_end(box, box.run(), [first])
        return True
    finally:
        box.close()


def test_the_demo_ends_as_it_must_when_nothing_happens(tmp_path):
    assert not crash_once(tmp_path, "before_commit", 1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("point", crashpoints.names())
def test_a_crash_at_a_named_point_changes_nothing_of_the_end_of_the_demo(tmp_path, point):
    assert crash_once(tmp_path, point, PLACES[point]), "the demo never comes to this place"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("point", crashpoints.names())
def test_a_crash_at_every_passing_of_a_named_point_changes_nothing_of_the_end_of_the_demo(tmp_path, point):
    came_to = list(takewhile(lambda nth: crash_once(tmp_path / str(nth), point, nth), count(1)))
    assert came_to, "the demo never comes to this point"
