"""The pages as the server draws them, for a browser with and without a script."""

import re
from html.parser import HTMLParser

import pytest
from django.test import Client, RequestFactory
from django.urls import reverse
from django.views.defaults import server_error

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import NodeView, RequestView, Snapshot
from sandbox_supervisor.protocol.states import NODE_LETTERS, GraphState, NodeState, RequestKind, RequestState
from tasks_app import bars
from tasks_app.models import TaskContact, TaskSnapshot
from tasks_app.services import clock
from tasks_app.states import Presence, Status
from tasks_app.web import listing
from tests.task_rows import House, make_house, make_task
from workspaces_app.ids import new_id
from workspaces_app.states import Role

pytestmark = pytest.mark.django_db

TURN = "\u202e"


@pytest.fixture
def house() -> House:
    return make_house()


def browser(house: House, role: Role = Role.OPERATOR, **options) -> Client:
    client = Client(**options)
    client.force_login(house.user(role), backend="django.contrib.auth.backends.ModelBackend")
    return client


def page(client: Client, address: str, status: int = 200, **headers: str) -> str:
    answer = client.get(address, headers=headers)
    assert answer.status_code == status
    return answer.content.decode()


class Ids(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [str(value) for name, value in attrs if name == "id"]


def test_before_there_is_a_sandbox_the_whole_flow_is_drawn(house):
    task = make_task(house, status=Status.PENDING, presence=Presence.NONE)
    text = page(browser(house), f"/tasks/{task.pk}")
    assert {"work", "deliver"} == set(re.findall(r'<a href="\?node=(\w+)" data-node', text))
    assert "The sandbox of this task is not there yet." in text
    assert "data-follows" in text


@pytest.mark.parametrize(
    ("status", "presence", "follows"),
    [
        (Status.PENDING, Presence.NONE, True),
        (Status.RUNNING, Presence.PRESENT, True),
        (Status.COMPLETED, Presence.PRESENT, True),
        (Status.FAILED, Presence.NONE, False),
        (Status.FAILED, Presence.LOST, False),
        (Status.COMPLETED, Presence.RECLAIMED, False),
    ],
)
def test_a_page_waits_for_a_supervisor_only_where_one_may_still_answer(house, status, presence, follows):
    nobody = {"host": "127.0.0.1", "port": 1, "fingerprint": "0" * 64}
    task = make_task(house, status=status, presence=presence, endpoint=nobody)
    assert ("data-follows" in page(browser(house), f"/tasks/{task.pk}")) is follows


@pytest.mark.parametrize("address", ["/", "/tasks/{task}"])
def test_ids_are_given_once(house, address):
    task = make_task(house)
    found = Ids(page(browser(house), address.format(task=task.pk))).found
    assert len(found) == len(set(found))


def test_a_title_cannot_turn_the_reading_direction(house):
    task = make_task(house, title=f"harmless{TURN}gpj.exe <b>")
    client = browser(house)
    for address in ("/", f"/tasks/{task.pk}"):
        text = page(client, address)
        assert TURN not in text
        assert "harmless\ufffdgpj.exe &lt;b&gt;" in text


@pytest.mark.parametrize("part", ["head", "questions", "delivery", "drawer"])
def test_each_part_of_the_task_page_can_be_fetched_alone(house, part):
    task = make_task(house, status=Status.PENDING, presence=Presence.NONE)
    text = page(browser(house), f"/tasks/{task.pk}", **{"X-Fragment": part})
    assert "<html" not in text


# --- the list --------------------------------------------------------------------------------------------------------


def test_without_a_task_the_list_says_how_to_begin(house):
    assert "./caisson up --demo" in page(browser(house), "/")


def test_many_tasks_come_in_pages_without_gap_or_repeat(house, monkeypatch, django_assert_max_num_queries):
    monkeypatch.setattr(listing, "ROWS", 5)
    made = {make_task(house).pk for _ in range(12)}
    client, seen, address = browser(house), [], "/?view=all"
    while address:
        with django_assert_max_num_queries(20):
            text = page(client, address)
        seen += re.findall(r'data-task="(\w+)"', text)
        following = re.search(r'rel="next" href="([^"]+)"', text)
        address = "/" + following[1].replace("&amp;", "&") if following else ""
    assert sorted(seen) == sorted(made)
    assert len(seen) == len(made)


def test_what_is_open_comes_under_headings_in_the_order_in_which_a_person_looks(house, monkeypatch):
    monkeypatch.setattr(listing, "ROWS", 2)
    completed, failed = make_task(house, status=Status.COMPLETED).pk, make_task(house, status=Status.FAILED).pk
    asking, running = make_task(house).pk, make_task(house).pk
    TaskContact.objects.update_or_create(task_id=asking, defaults={"attention": 1})
    client = browser(house)
    first = page(client, "/")
    (address,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = page(client, "/" + address.replace("&amp;", "&"))
    rows = re.findall(r'class="group-name nowrap">.*?</svg>([^<]+)<|data-task="(\w+)"', first + second)
    assert [heading or task for heading, task in rows] == [
        *("Needs you", asking, "Running", running),
        *("Failed", failed, "Kept, expiring", completed),
    ]
    assert 'class="group"' not in page(client, "/?view=all")


def test_what_a_task_asks_has_a_line_of_its_own_in_which_nothing_works(house):
    task = make_task(house)
    asked = RequestView(
        id="r", kind=RequestKind.QUESTION, state=RequestState.OPEN, node="work", attempt=None, title=f"<b>Which?{TURN}"
    )
    keep_snapshot(task, requests=(asked,))
    text = page(browser(house), f"/tasks/{task.pk}", 200, **{"X-Fragment": "asks"})
    assert "work asks</span> &lt;b&gt;Which?\ufffd" in text
    assert f'href="/tasks/{task.pk}?node=work"' in text


def test_a_node_that_has_ended_says_how_long_it_took_and_one_that_works_which_attempt_it_is(house):
    task = make_task(house)
    at = "2026-01-01T00:00:{}Z".format
    ended = NodeView(
        key="work",
        kind="command",
        state=NodeState.SUCCEEDED,
        generation=2,
        started_at=at("10.000"),
        ended_at=at("10.349"),
    )
    retried = NodeView(
        key="deliver",
        kind="delivery",
        state=NodeState.RUNNING,
        generation=2,
        attempts=("deliver.1.1", "deliver.2.1", "deliver.2.2"),
    )
    keep_snapshot(task, nodes=(ended, retried))
    text = page(browser(house), f"/tasks/{task.pk}")
    assert "succeeded · 0.3 s" in text
    assert "running · attempt 2" in text


def keep_snapshot(task, *, nodes=(), requests=()):
    kept = Snapshot(
        epoch="e", seq=1, graph=GraphState.RUNNING, round=1, boot=1, nodes=nodes, attempts=(), requests=requests
    )
    TaskSnapshot.objects.create(
        task=task, round=1, digest="sha256:" + "e" * 64, data=codec.plain(kept), stored_at=clock.database_now()
    )


def test_a_task_that_waits_for_a_person_is_counted_on_every_page(house):
    task = make_task(house)
    TaskContact.objects.update_or_create(task=task, defaults={"attention": 1})
    client = browser(house)
    for address in ("/", f"/tasks/{task.pk}"):
        assert 'aria-label="Needs you: 1"' in page(client, address)
    assert task.pk in page(client, "/?view=needs-you")
    assert task.pk not in page(client, "/?view=failed")


def test_the_bar_of_a_large_flow_is_drawn_fine(house):
    task = make_task(house)
    bars.remember(task.pk, NODE_LETTERS[NodeState.SUCCEEDED] * 60)
    text = page(browser(house), "/")
    assert "60 of 60 nodes" in text
    assert 'class="bar is-fine"' in text


@pytest.mark.parametrize("address", ["/?q=%00", "/?view=%00&before=%00", "/?q=" + "x" * 5000, "/?before=tsk_x"])
def test_nonsense_in_the_address_of_the_list_is_no_error(house, address):
    make_task(house)
    page(browser(house), address)


# --- who may what ----------------------------------------------------------------------------------------------------


def test_somebody_anonymous_is_sent_to_sign_in(house):
    task = make_task(house)
    answer = Client().get(f"/tasks/{task.pk}")
    assert (answer.status_code, answer["Location"]) == (302, reverse("sign-in"))


@pytest.mark.parametrize("address", ["tsk_00000000000000000000000000", "x", "%F0%9F%92%A9"])
def test_what_is_not_there_is_a_page_of_the_console(house, address):
    text = page(browser(house), f"/tasks/{address}", 404)
    assert "There is no such page, or it is not yours to see." in text
    assert "css/console.css" in text


def test_a_task_of_another_workspace_looks_as_if_it_were_not_there(house):
    other = make_task(make_house("other"))
    client = browser(house)
    never_was = page(client, f"/tasks/{new_id('tsk')}", 404)
    assert page(client, f"/tasks/{other.pk}", 404) == never_was


def test_a_viewer_is_shown_no_button_and_refused_in_words(house):
    task = make_task(house, status=Status.PENDING, presence=Presence.NONE)
    client = browser(house, Role.VIEWER)
    assert "Cancel task" not in page(client, f"/tasks/{task.pk}")
    refused = client.post(f"/tasks/{task.pk}/cancel")
    assert refused.status_code == 403
    assert "<h1>Not allowed</h1>" in refused.content.decode()


def test_a_form_from_elsewhere_does_nothing_and_is_told_so(house):
    task = make_task(house)
    refused = browser(house, enforce_csrf_checks=True).post(f"/tasks/{task.pk}/cancel")
    assert refused.status_code == 403
    assert "nothing was done" in refused.content.decode()
    task.refresh_from_db()
    assert task.cancel_requested_at is None


def test_a_page_that_fails_says_so_in_the_look_of_the_console(house):
    answer = server_error(RequestFactory().get("/"))
    assert answer.status_code == 500
    assert "Something broke" in answer.content.decode()


# --- deleting without a script ---------------------------------------------------------------------------------------


def test_a_task_can_be_deleted_without_a_script(house):
    task = make_task(house, status=Status.COMPLETED, creator=Role.OPERATOR)
    client = browser(house)
    text = page(client, f"/tasks/{task.pk}")
    assert 'href="#delete"' in text
    assert not re.search(r'id="del-go"[^>]*disabled', text)
    client.post(f"/tasks/{task.pk}/delete", {"confirmation": "wrong"})
    task.refresh_from_db()
    assert task.delete_requested_at is None
    client.post(f"/tasks/{task.pk}/delete", {"confirmation": task.pk})
    task.refresh_from_db()
    assert task.delete_requested_at is not None


# --- the drawer and old pictures -------------------------------------------------------------------------------------


def test_where_nobody_answers_the_last_heartbeat_tells_the_states(house):
    task = make_task(house, status=Status.FAILED, presence=Presence.LOST)
    bars.remember(task.pk, NODE_LETTERS[NodeState.SUCCEEDED] + NODE_LETTERS[NodeState.RUNNING])
    text = page(browser(house), f"/tasks/{task.pk}")
    assert "last heard" in text
    assert "running · last heard" in text
    assert "1 of 2 nodes done" in text


def test_a_task_that_failed_before_anything_was_heard_is_not_called_planned(house):
    task = make_task(house, status=Status.FAILED, presence=Presence.NONE)
    assert "nothing was kept" in page(browser(house), f"/tasks/{task.pk}")
