"""What a hostile page, a cache on the way or somebody else's name for this host can make of the console: nothing."""

import re

import pytest
from django.test import Client

from tasks_app.models import Task
from tasks_app.services import clock
from tests.api.clients import FORM_TOKEN, Api
from tests.task_rows import House, make_house, make_task
from workspaces_app.services import bootstrap, sign_in_links
from workspaces_app.services.audit import SYSTEM

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at")]

PAGES = ("/", "/tasks/{task}", "/tasks/nothing", "/nothing", "/sign-in", "/sign-in/x", "/admin/login/", "/api/v1/me")


@pytest.fixture
def house() -> House:
    return make_house()


@pytest.fixture
def task(house: House) -> Task:
    return make_task(house)


@pytest.fixture
def browser(house: House, task: Task) -> Client:
    return Api.of_user(house.user()).client


@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_framed_cached_by_others_or_runs_what_is_not_ours(browser, task, page):
    answer = browser.get(page.format(task=task.pk))
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Cross-Origin-Opener-Policy"] == answer["Referrer-Policy"] == "same-origin"
    assert re.search(r"\bprivate\b|\bno-store\b", answer["Cache-Control"])
    rules = dict(rule.strip().partition(" ")[::2] for rule in answer["Content-Security-Policy"].split(";"))
    assert (rules["default-src"], rules["frame-ancestors"], rules["base-uri"]) == ("'none'",) * 3
    assert (rules["script-src"], rules["style-src"], rules["form-action"]) == ("'self'",) * 3


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "localhost@evil.example", "", "10.0.0.1"])
@pytest.mark.parametrize("page", ["/", "/api/v1/me", "/sign-in", "/internal/v1/spec"])
def test_another_name_for_this_host_is_refused(browser, host, page):
    answer = browser.get(page, headers={"Host": host})
    assert answer.status_code == 400
    assert "evil.example" not in answer.content.decode()


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "https://localhost:8765"])
@pytest.mark.parametrize("path", ["/api/v1/tasks/{task}/cancel", "/tasks/{task}/cancel", "/tasks/{task}/delete"])
def test_a_form_of_another_origin_does_nothing_although_it_knows_the_form_token(browser, task, origin, path):
    answer = browser.post(
        path.format(task=task.pk),
        {"csrfmiddlewaretoken": FORM_TOKEN},
        headers={"Origin": origin, "X-CSRFToken": FORM_TOKEN},
    )
    assert answer.status_code == 403
    task.refresh_from_db()
    assert (task.cancel_requested_at, task.delete_requested_at) == (None, None)


@pytest.mark.parametrize(
    "wanted", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_signing_in_leads_nowhere_but_to_the_tasks(wanted):
    key = sign_in_links.create(user=bootstrap.ensure_workspace_and_admin().admin, by=SYSTEM, now=clock.database_now())
    browser = Client(enforce_csrf_checks=True)
    browser.cookies["caisson_csrf"] = FORM_TOKEN
    answer = browser.post(f"/sign-in/{key}?next={wanted}", {"csrfmiddlewaretoken": FORM_TOKEN, "next": wanted})
    assert (answer.status_code, answer["Location"]) == (302, "/")
    session = answer.cookies["caisson_session"]
    assert (session["httponly"], session["samesite"], session["path"], session["domain"]) == (True, "Lax", "/", "")
    assert browser.get(f"/sign-in?next={wanted}")["Location"] == "/"


def test_signing_in_gives_the_browser_another_session(browser):
    before = browser.cookies["caisson_session"].value
    key = sign_in_links.create(user=bootstrap.ensure_workspace_and_admin().admin, by=SYSTEM, now=clock.database_now())
    browser.post(f"/sign-in/{key}", {"csrfmiddlewaretoken": FORM_TOKEN})
    after = browser.cookies["caisson_session"].value
    assert before != after
    old = Client()
    old.cookies["caisson_session"] = before
    assert old.get("/")["Location"] == "/sign-in"


@pytest.mark.parametrize("path", ["/sign-out", "/sign-in/csl_x", "/tasks/{task}/cancel"])
def test_a_form_without_its_token_is_refused(browser, task, path):
    assert browser.post(path.format(task=task.pk)).status_code == 403
    assert browser.get("/").status_code == 200
