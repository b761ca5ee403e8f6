"""The supervisor dies at every named point and at random moments; the graph ends as if it had not."""

import random
import time
from collections.abc import Callable

import pytest

from sandbox_supervisor.log import crashpoints
from tests.supervisor.engine.rehearsal import FILES, FINAL, nodes
from tests.supervisor.engine.scenario import BRANCH, Ran, Sandbox

# One place of each point for every run of the suite; the series is for the long run.
ONE_PLACE = {name: 1 + (7 * number) % 19 for number, name in enumerate(crashpoints.names())}
ONE_PLACE |= {
    "artefact_written": 1,
    "artefact_renamed": 1,
    "before_checkpoint": 1,
    "after_checkpoint": 1,
    "output_written": 2,
}
SERIES = (1, 2, 4, 7, 12, 20, 33, 54)


def rehearse(sandbox: Callable[..., Sandbox], *, agents: bool = False) -> Sandbox:
    return sandbox(*nodes(agents=agents))


def check_end(box: Sandbox, ran: Ran, earlier: list[Ran]) -> None:
    """Hold the end of a rehearsal against what it must come to."""
    assert ran.code == 0, "\n".join(ran.lines) + ran.errors
    assert {node: ran.outcome(node) for node in FINAL} == FINAL
    assert box.git("ls-tree", "--name-only", BRANCH).split() == FILES
    for before in earlier:
        assert before.lines == ran.lines[: len(before.lines)]  # what was told stands, in the same place
    assert len([line for line in ran.lines if " rework.asked " in line]) == 1
    assert box.verify().startswith("sound")
    assert box.wait_empty() == []


def crash_once(box: Sandbox, setting: str) -> bool:
    """Run with a crash armed; say whether it came to it. Hold the end against what it must be either way."""
    first = box.run(CAISSON_CRASH_AT=setting)
    if first.code == 0:
        check_end(box, first, [])
        return False
    assert first.code == crashpoints.EXIT_STATUS, first.errors
    check_end(box, box.run(), [first])
    return True


def test_the_rehearsal_ends_as_it_must_when_nothing_happens(sandbox):
    box = rehearse(sandbox)
    check_end(box, box.run(), [])


@pytest.mark.parametrize("point", crashpoints.names())
def test_a_crash_at_a_named_point_changes_nothing_of_the_end(sandbox, point):
    crash_once(rehearse(sandbox), f"{point}:{ONE_PLACE[point]}")


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", crashpoints.names())
def test_a_crash_at_any_passing_of_a_named_point_changes_nothing_of_the_end(sandbox, point):
    for nth in SERIES:
        if not crash_once(rehearse(sandbox), f"{point}:{nth}"):
            break


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(5))
def test_a_kill_at_random_moments_changes_nothing_of_the_end(sandbox, seed):
    """Four kills a seed: twenty moments in all. More interruptions of one attempt than its budget are not provoked."""
    moments = random.Random(seed)
    for _ in range(4):
        box = rehearse(sandbox)
        box.start()
        time.sleep(moments.uniform(0.2, 4.0))  # the moment is the point of the test
        finished = box.started[-1].poll() is not None
        if finished:
            check_end(box, box.ran(), [])
            continue
        box.kill()
        first = box.ran()
        check_end(box, box.run(), [first])


@pytest.mark.parametrize("setting", ["after_commit:30", "after_effect:9", "before_record:3", "after_record:14"])
def test_a_crash_in_the_midst_of_agents_changes_nothing_of_the_end(sandbox, setting):
    box = rehearse(sandbox, agents=True)
    first = box.run(CAISSON_CRASH_AT=setting)
    assert first.code == crashpoints.EXIT_STATUS, first.errors
    check_end(box, box.run(), [first])
