"""Which sandbox images stand while others are pruned: those that a task may still need, and those of new tasks."""

from collections.abc import Callable

import pytest

from policy_app.services.publish import adopt_runner_image
from sandbox_providers.scripted import IMAGE
from tasks_app.services.providers import images_wanted

ANOTHER = "sha256:" + "6" * 64


@pytest.fixture
def upgrade(house, settings) -> Callable[[], None]:
    """Let new tasks get another image, as a start of the product with new code does."""

    def take() -> None:
        settings.SANDBOX_IMAGE = ANOTHER
        adopt_runner_image(ANOTHER, now=house.clock())

    return take


def test_without_tasks_the_image_of_an_earlier_product_is_not_wanted(upgrade):
    upgrade()
    assert images_wanted() == {ANOTHER}


def test_the_image_of_new_tasks_is_wanted_without_any_task(house):
    assert IMAGE in images_wanted()


@pytest.mark.parametrize("stage", ["pending", "starting", "running", "ended"])
def test_a_task_keeps_its_image_after_an_upgrade(house, upgrade, stage):
    getattr(house, stage)()
    upgrade()
    assert images_wanted() == {IMAGE, ANOTHER}


def test_a_reclaimed_task_needs_no_image(house, upgrade):
    house.archived(house.ended())
    upgrade()
    house.clock.advance(days=30)
    house.reclaim_all()
    house.reclaim_all()  # a jump of the clock wants a second look
    assert images_wanted() == {ANOTHER}


def test_the_image_that_the_policy_names_is_wanted(house):
    named = "registry.example.org/sandbox@" + ANOTHER
    adopt_runner_image(named, now=house.clock())
    assert images_wanted() == {IMAGE, ANOTHER}
