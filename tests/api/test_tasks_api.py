"""Tasks over REST: created once with everything frozen, read, renamed, cancelled, deleted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_providers.registry import ProviderSettings, provider_for
from sandbox_providers.scripted import ScriptedProvider, World
from tasks_app.models import Task
from tasks_app.services import clock, providers
from tasks_app.states import Presence, Status
from tests.api.clients import Api
from tests.git_remotes import Project, make_project
from tests.task_rows import House, make_house, make_task, policy
from workspaces_app.models import AllowedRoot, Membership
from workspaces_app.states import Role, Scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def house(db: None, project: Project, tmp_path: Path) -> Iterator[House]:
    """A house whose repository is real, and whose deployment has a provider."""
    house = make_house(remote=str(project.remote))
    AllowedRoot.objects.create(workspace=house.workspace, path=str(project.remote.parent))
    policy()
    with providers.using("local", ScriptedProvider(ProviderSettings(state_dir=tmp_path))):
        yield house
    World.forget(tmp_path)


NEW = {"repository": "project", "flow": "work", "title": "Add a file", "brief": "Please."}


def create(api: Api, key: str = "k1", **changes: object):
    return api.post("tasks", NEW | changes, idempotency_key=key)


# --- create ---


def test_a_task_is_created_with_everything_frozen(api, project):
    response = create(api)
    assert response.status_code == 201, response.content
    made = response.json()
    assert (made["status"], made["title"], made["base_commit"]) == ("pending", "Add a file", project.base)
    assert made["base_ref"] in {"refs/heads/main", "HEAD"}
    assert made["task_branch"].startswith("caisson/add-a-file-")
    assert response["Location"] == f"/api/v1/tasks/{made['id']}"
    assert Task.objects.get().pk == made["id"]


def test_the_same_key_and_body_give_the_same_task_and_say_so(api):
    first, second = create(api), create(api)
    assert (second.status_code, second.json()["id"]) == (201, first.json()["id"])
    assert second["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    assert Task.objects.count() == 1


def test_the_same_key_with_another_body_is_refused(api):
    create(api)
    response = create(api, title="Another")
    assert (response.status_code, response.json()["code"]) == (422, "idempotency_key_reused")


def test_the_same_key_of_another_member_is_another_task(house, api):
    create(api)
    other = create(Api.of_user(house.user(Role.ADMIN)))
    assert other.status_code == 201
    assert Task.objects.count() == 2


def test_without_a_key_nothing_is_created(api):
    response = api.post("tasks", NEW)
    assert (response.status_code, response.json()["code"]) == (422, "idempotency_key_missing")
    assert not Task.objects.exists()


@pytest.mark.parametrize("key", ["k" * 201, "\x01", "a\x7fb"])
def test_a_key_that_is_none_is_refused(api, key):
    assert create(api, key=key).status_code == 422


@pytest.mark.parametrize(
    ("changes", "status", "code", "pointer"),
    [
        ({"repository": "nothing"}, 404, "repository_unknown", "/repository"),
        ({"flow": "nothing"}, 404, "flow_unknown", "/flow"),
        ({"flow": "work@9"}, 404, "flow_unknown", "/flow"),
        ({"flow": "work@x"}, 404, "flow_unknown", "/flow"),
        ({"workspace": "nothing"}, 404, "workspace_unknown", "/workspace"),
        ({"title": "", "brief": ""}, 422, "title_missing", "/title"),
        ({"base": "nothing"}, 422, "base_missing", "/base"),
        ({"base": "--upload-pack=x"}, 422, "base_malformed", "/base"),
        ({"task_branch": "main"}, 422, "branch_taken", "/task_branch"),
        ({"task_branch": "a b"}, 422, "branch_malformed", "/task_branch"),
    ],
)
def test_what_cannot_be_created_names_the_place(api, changes, status, code, pointer):
    response = create(api, **changes)
    document = response.json()
    assert (response.status_code, document["code"]) == (status, code)
    assert document["errors"][0]["pointer"] == pointer
    assert not Task.objects.exists()


def test_an_unknown_flow_is_answered_with_those_that_there_are(api):
    assert create(api, flow="nothing").json()["detail"].endswith("there are work.")


def test_a_flow_may_be_named_with_its_number_or_its_id(api, house):
    assert create(api, key="a", flow="work@1").status_code == 201
    assert create(api, key="b", flow=house.flow_version.pk).status_code == 201


def test_what_the_deployment_lacks_is_a_gap_before_any_row(api, tmp_path):
    with providers.using("local", provider_for("local", ProviderSettings(state_dir=tmp_path))):
        response = create(api)
    document = response.json()
    assert (response.status_code, document["code"]) == (422, "capability_gap")
    assert document["gaps"][0]["kind"]
    assert not Task.objects.exists()


def test_a_trial_goes_the_same_way_and_makes_no_row(api, project):
    response = api.post("tasks:validate", NEW)
    assert response.status_code == 200, response.content
    assert response.json()["base_commit"] == project.base
    assert not Task.objects.exists()
    assert api.post("tasks:validate", NEW | {"base": "nothing"}).json()["code"] == "base_missing"


def test_a_member_of_two_workspaces_must_say_which(api, house):
    other = make_house("other")
    Membership.objects.create(workspace=other.workspace, user=house.user(), role=Role.OPERATOR)
    again = Api.of_user(house.user())
    assert create(again).json()["code"] == "workspace_needed"
    assert create(again, workspace="main").status_code == 201


def test_a_repository_of_another_workspace_is_unknown(api, house):
    other = make_house("other")
    assert create(api, repository=other.repository.pk).json()["code"] == "repository_unknown"


# --- read ---


def test_a_task_tells_its_facets_apart(api, house):
    task = make_task(house)
    record = api.get(f"tasks/{task.pk}").json()
    assert (record["status"], record["presence"]) == ("running", "present")
    assert record["health"] == {"state": "unknown", "last_contact_at": None, "unreachable_since": None}
    assert record["attention"] == 0
    assert record["failure"] is None
    assert record["retention"]["max_seconds"] == 86400
    assert record["flow_version"]["digest"] == house.flow_version.digest
    assert record["console_url"].endswith(f"/tasks/{task.pk}")


def test_a_failed_task_says_why_and_how_long_it_is_kept(api, house):
    record = api.get(f"tasks/{make_task(house, status=Status.FAILED).pk}").json()
    assert record["failure"]["code"] == "node_failed"
    assert record["failure"]["message"]
    assert 0 < record["retention"]["seconds_left"] <= 86400
    assert record["retention"]["retain_until"].endswith("Z")


@pytest.mark.parametrize(
    ("query", "count"),
    [("", 3), ("status=failed", 1), ("presence=reclaimed", 1), ("repository=project", 3), ("repository=x", 0),
     ("creator=main-admin", 1), ("workspace=main", 3), ("workspace=other", 0)],
)  # fmt: skip
def test_the_list_can_be_narrowed(api, house, query, count):
    make_task(house)
    make_task(house, status=Status.FAILED, creator=Role.ADMIN)
    make_task(house, status=Status.COMPLETED, presence=Presence.RECLAIMED)
    make_task(make_house("other"))
    assert len(api.get(f"tasks?{query}").json()["data"]) == count


def test_what_was_frozen_can_be_read_and_is_cached_by_its_digest(api, house):
    task = make_task(house)
    response = api.get(f"tasks/{task.pk}/frozen")
    frozen = response.json()
    assert frozen["specification_digest"] == task.specification_digest
    assert [node["key"] for node in frozen["flow"]["nodes"]] == ["work", "deliver"]
    assert frozen["policy_revision"] == 1
    assert api.get(f"tasks/{task.pk}/frozen", if_none_match=response["ETag"]).status_code == 304


def test_the_frozen_record_holds_no_token(api, house):
    from tasks_app.services import tokens

    task = make_task(house)
    said = api.get(f"tasks/{task.pk}/frozen").content.decode() + api.get(f"tasks/{task.pk}").content.decode()
    assert tokens.task_token(task) not in said
    assert tokens.dial_token(task) not in said


# --- what may be done ---


@pytest.mark.parametrize(
    ("status", "presence", "expected"),
    [
        (Status.PENDING, Presence.NONE, {"rename", "cancel", "delete"}),
        (Status.PROVISIONING, Presence.CREATING, {"rename", "cancel", "delete"}),
        (
            Status.RUNNING,
            Presence.PRESENT,
            {"rename", "cancel", "delete", "rerun", "rework", "answer", "message", "pause", "resume", "cancel_attempt"},
        ),
        (Status.COMPLETED, Presence.PRESENT, {"rename", "delete", "rerun", "rework"}),
        (Status.FAILED, Presence.LOST, {"rename", "delete"}),
        (Status.COMPLETED, Presence.RECLAIMED, {"rename"}),
    ],
)
def test_a_task_lists_what_may_be_done_with_it(api, house, status, presence, expected):
    assert set(api.get(f"tasks/{make_task(house, status=status, presence=presence).pk}").json()["actions"]) == expected


@pytest.mark.parametrize(
    ("role", "creator", "may"),
    [(Role.VIEWER, Role.VIEWER, False), (Role.OPERATOR, Role.OPERATOR, True), (Role.OPERATOR, Role.ADMIN, False),
     (Role.MAINTAINER, Role.ADMIN, True)],
)  # fmt: skip
def test_only_the_creator_or_a_maintainer_may_delete(house, role, creator, may):
    task = make_task(house, creator=creator)
    api = Api.of_user(house.user(role))
    assert ("delete" in api.get(f"tasks/{task.pk}").json()["actions"]) is may
    assert api.call("DELETE", f"tasks/{task.pk}").status_code == (202 if may else 403)


def test_a_viewer_is_offered_nothing(house):
    assert Api.of_user(house.user(Role.VIEWER)).get(f"tasks/{make_task(house).pk}").json()["actions"] == []


def test_a_reading_token_is_offered_nothing(house):
    api = Api.of_token(house.members[Role.ADMIN], Scope.READ)
    assert api.get(f"tasks/{make_task(house).pk}").json()["actions"] == []


# --- change ---


def test_a_task_gets_another_title_and_its_history_says_so(api, house):
    task = make_task(house)
    assert api.call("PATCH", f"tasks/{task.pk}", {"title": "  Better \n title "}).json()["title"] == "Better title"
    events = api.get(f"tasks/{task.pk}/events").json()["data"]
    assert [(event["kind"], event["actor"]) for event in events] == [("task.renamed", "user:main-operator")]


@pytest.mark.parametrize(("title", "status"), [("", 400), ("x" * 201, 400), ("   ", 422), ("a\x07b", 422)])
def test_a_title_that_is_none_is_refused(api, house, title, status):
    assert api.call("PATCH", f"tasks/{make_task(house).pk}", {"title": title}).status_code == status


def test_nothing_else_of_a_task_can_be_edited(api, house):
    response = api.call("PATCH", f"tasks/{make_task(house).pk}", {"title": "x", "brief": "y"})
    assert response.json()["errors"][0]["pointer"] == "/brief"


def test_a_cancel_is_accepted_once_and_satisfied_afterwards(api, house):
    task = make_task(house)
    first, second = api.post(f"tasks/{task.pk}/cancel"), api.post(f"tasks/{task.pk}/cancel", {})
    assert (first.status_code, second.status_code) == (202, 200)
    assert second.json()["cancel_requested_at"] == first.json()["cancel_requested_at"] is not None
    assert "cancel" not in second.json()["actions"]


def test_a_task_that_has_ended_cannot_be_cancelled_and_says_what_can_be_done(api, house):
    response = api.post(f"tasks/{make_task(house, status=Status.COMPLETED).pk}/cancel")
    document = response.json()
    assert (response.status_code, document["code"]) == (409, "already_ended")
    assert set(document["allowed_actions"]) == {"rename", "delete", "rerun", "rework"}


def test_a_deletion_is_accepted_once_and_satisfied_afterwards(api, house):
    task = make_task(house)
    codes = [api.call("DELETE", f"tasks/{task.pk}").status_code for _ in range(2)]
    assert codes == [202, 200]
    assert Task.objects.get(pk=task.pk).delete_requested_at is not None


def test_deleting_what_is_reclaimed_already_changes_nothing(api, house):
    task = make_task(house, status=Status.COMPLETED, presence=Presence.RECLAIMED)
    assert api.call("DELETE", f"tasks/{task.pk}").status_code == 200
    assert Task.objects.get(pk=task.pk).delete_requested_at is None


def test_the_history_is_given_oldest_first_page_by_page(api, house):
    from tasks_app.models import TaskEvent

    task = make_task(house)
    for number in range(5):
        TaskEvent.objects.create(task=task, at=clock.database_now(), kind=f"k{number}", actor="system:test", rev=0)
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        body = api.get(f"tasks/{task.pk}/events?limit=2&cursor={cursor}").json()
        seen += [event["kind"] for event in body["data"]]
        cursor = body["next_cursor"]
    assert seen == ["k0", "k1", "k2", "k3", "k4"]
