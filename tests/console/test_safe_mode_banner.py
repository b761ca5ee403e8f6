"""Whoever opens a page while the database may be one that was restored sees it, and what to do."""

import pytest
from django.test import Client
from django.urls import reverse

from tasks_app.services import deployment
from tests.console.test_pages import browser, page
from tests.task_rows import House, make_delivery, make_house, make_task
from tests.tasks.lifecycle.restoring import fall_behind
from workspaces_app.states import Role

pytestmark = pytest.mark.django_db


@pytest.fixture
def house() -> House:
    return make_house()


@pytest.fixture
def restored(settings, tmp_path) -> None:
    """A database that is older than what the state directory tells."""
    settings.STATE_DIR = tmp_path
    deployment.advance()
    fall_behind()


@pytest.mark.parametrize("address", ["/", "/tasks/{task}", "/tasks/nothing"])
def test_every_page_says_once_that_the_database_was_restored_and_what_to_do(house, restored, address):
    task = make_task(house)
    text = browser(house).get(address.format(task=task.pk)).content.decode()
    assert text.count("Safe mode.") == 1
    assert "The database is older than the state directory" in text
    assert "./caisson confirm-database" in text


def test_the_administration_says_it_too(house, restored):
    user = house.user(Role.ADMIN)
    user.is_staff = user.is_superuser = True
    user.save()
    assert page(browser(house, Role.ADMIN), reverse("admin:index")).count("Safe mode.") == 1


def test_a_database_that_is_trusted_needs_no_word(house):
    assert "Safe mode" not in page(browser(house), "/")


def test_a_stranger_is_not_told(restored):
    assert "Safe mode" not in page(Client(), "/sign-in")


def test_a_delivery_that_waits_says_why(house):
    task = make_task(house)
    make_delivery(task, state="queued", settled_at=None, code="safe_mode", message="This waits for somebody.")
    assert "This waits for somebody." in page(browser(house), f"/tasks/{task.pk}")
