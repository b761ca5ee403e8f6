"""Random lives of a task from printed seeds: invariants after every step, and without faults it comes to rest."""

import os

import pytest

from tests.tasks.simulation import Simulation
from tests.tasks.simulation_rules import START, at_rest

LIVES = int(os.environ.get("CAISSON_TEST_LIVES", "200"))
BLOCKS = 10
STEPS = 400


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_lives_keep_every_invariant_and_come_to_rest(block):
    for seed in range(block * LIVES // BLOCKS, (block + 1) * LIVES // BLOCKS):
        life = Simulation(seed)
        try:
            for _ in range(STEPS):
                life.step()
            life.calm(ticks=5)
            assert at_rest(life), f"stuck: {life.task.status}, {life.task.presence}, {life.task.health}"
        except AssertionError as error:
            story = "\n".join(life.trace[-40:])
            pytest.fail(f"seed {seed}, {life.now - START}: {error}\nwords {life.words}\n{story}")


def test_the_lives_are_lived_to_many_different_ends():
    """A simulation that never gets anywhere would keep every invariant."""
    ends, presences, reopened = set(), set(), 0
    for seed in range(120):
        life = Simulation(seed)
        for _ in range(STEPS):
            life.step()
        life.calm(ticks=5)
        ends |= {word for word, _ in life.words} | {life.task.failure_code}
        presences.add(life.task.presence)
        reopened += any(round_ > 1 for _, round_ in life.words)
    assert ends >= {"running", "completed", "failed", "cancelled", "node_failed", "sandbox_lost", "connection_lost"}
    assert presences >= {"present", "lost", "reclaimed"}
    assert reopened
