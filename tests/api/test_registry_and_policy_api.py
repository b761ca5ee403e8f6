"""Flows are compiled, published on what was seen, and read; the policy is read by staff."""

import pytest

from policy_app.services.publish import publish_revision
from tasks_app.services import clock
from tests.api.clients import Api
from tests.task_rows import House, make_house, policy
from workspaces_app.access import actor_of_user
from workspaces_app.models import Membership, User
from workspaces_app.states import Role, Scope

pytestmark = pytest.mark.django_db

SOURCE = """\
apiVersion: caisson/v1
kind: Flow
name: little
nodes:
  - key: work
    command: {run: "true"}
"""


@pytest.fixture
def maintainer(house: House) -> Api:
    return Api.of_user(house.user(Role.MAINTAINER))


def source(run: str) -> dict[str, str]:
    return {"source": SOURCE.replace('"true"', f'"{run}"')}


# --- flows ---


def test_a_flow_file_is_compiled_without_being_kept(maintainer):
    response = maintainer.post("flows:compile", {"source": SOURCE})
    assert response.status_code == 200, response.content
    body = response.json()
    assert (body["name"], body["compiled"]["nodes"][0]["key"]) == ("little", "work")
    assert body["digest"].startswith("sha256:")
    assert body["worst_case"]["total_attempts"] >= 1
    assert maintainer.get("flows?name=little").json()["data"] == []


def test_every_problem_of_a_flow_file_is_named_with_its_line(maintainer):
    broken = (
        SOURCE.replace("kind: Flow", "kind: Folw") + "  - key: other\n    needs: [nothing]\n    command: {run: x}\n"
    )
    response = maintainer.post("flows:compile", {"source": broken})
    document = response.json()
    assert (response.status_code, document["code"]) == (422, "flow_invalid")
    assert len(document["errors"]) >= 2
    assert all({"code", "pointer", "line", "column", "detail"} <= set(error) for error in document["errors"])


@pytest.mark.parametrize("text", ["", "[", "a: &x [*x, *x]", "\x00", "x" * 600_000])
def test_a_hostile_flow_file_is_a_problem_and_no_more(maintainer, text):
    assert maintainer.post("flows:compile", {"source": text}).status_code == 422


def test_a_new_flow_is_published_and_listed(maintainer):
    response = maintainer.post("flows", {"source": SOURCE})
    assert response.status_code == 201, response.content
    made = response.json()
    assert (made["name"], made["number"], made["workspace"]) == ("little", 1, "main")
    assert [row["id"] for row in maintainer.get("flows?name=little").json()["data"]] == [made["id"]]


def test_publishing_the_same_file_again_gives_the_same_version(maintainer):
    first, second = maintainer.post("flows", {"source": SOURCE}), maintainer.post("flows", {"source": SOURCE})
    assert second.json()["id"] == first.json()["id"]


def test_a_change_must_name_the_version_it_rests_on(maintainer):
    first = maintainer.post("flows", {"source": SOURCE})
    missing = maintainer.post("flows", source("echo 2"))
    assert (missing.status_code, missing.json()["code"]) == (428, "if_match_missing")
    second = maintainer.post("flows", source("echo 2"), if_match=first["ETag"])
    assert (second.status_code, second.json()["number"]) == (201, 2)
    late = maintainer.post("flows", source("echo 3"), if_match=first["ETag"])
    assert (late.status_code, late.json()["code"]) == (412, "flow_moved")
    assert maintainer.post("flows", source("echo 3"), if_match="*").json()["number"] == 3


def test_a_version_is_read_with_its_file_and_cached_by_its_tag(api, maintainer):
    made = maintainer.post("flows", {"source": SOURCE}).json()
    response = api.get(f"flows/versions/{made['id']}")
    assert response.json()["source"] == SOURCE
    assert response.json()["compiled"]["nodes"][0]["command"]["run"] == "true"
    assert api.get(f"flows/versions/{made['id']}", if_none_match=response["ETag"]).status_code == 304


def test_a_version_of_another_workspace_does_not_exist(api):
    other = make_house("other")
    assert api.get(f"flows/versions/{other.flow_version.pk}").status_code == 404
    assert {row["workspace"] for row in api.get("flows").json()["data"]} == {"main"}


def test_publishing_for_the_whole_deployment_is_a_permission_of_its_own(maintainer, house):
    assert maintainer.post("flows", {"source": SOURCE, "deployment": True}).status_code == 404
    root = User.objects.create(username="root", is_staff=True, is_superuser=True)
    Membership.objects.create(workspace=house.workspace, user=root, role=Role.VIEWER)
    response = Api.of_user(root).post("flows", {"source": SOURCE, "deployment": True})
    assert (response.status_code, response.json()["workspace"]) == (201, None)


@pytest.mark.parametrize(("role", "status"), [(Role.VIEWER, 403), (Role.OPERATOR, 403), (Role.MAINTAINER, 201)])
def test_maintainers_publish_flows(house, role, status):
    assert Api.of_user(house.user(role)).post("flows", {"source": SOURCE}).status_code == status


# --- policy ---


@pytest.fixture
def staff(house: House) -> Api:
    policy()
    return Api.of_user(User.objects.create(username="staff", is_staff=True))


def publish() -> None:
    from dataclasses import replace
    from datetime import timedelta

    root = User.objects.create(username="publisher", is_staff=True, is_superuser=True)
    publish_revision(
        based_on=1,
        message="Keep them longer",
        author=actor_of_user(root),
        values=replace(policy().values, max_retention=timedelta(days=9)),
        now=clock.database_now(),
    )


def test_staff_read_the_policy_that_new_tasks_freeze(staff):
    response = staff.get("policy")
    record = response.json()
    assert (record["number"], record["current"], record["parent"]) == (1, True, None)
    assert record["values"]["max_retention"] == 3 * 86400
    assert record["values"]["cpu_limit"] == "2.000"
    assert staff.get("policy", if_none_match=response["ETag"]).status_code == 304


def test_a_publication_changes_the_tag_of_the_policy(staff):
    before = staff.get("policy")
    publish()
    after = staff.get("policy", if_none_match=before["ETag"])
    assert (after.status_code, after.json()["number"]) == (200, 2)


def test_revisions_are_listed_and_compared(staff):
    publish()
    assert [row["number"] for row in staff.get("policy/revisions").json()["data"]] == [2, 1]
    diff = staff.get("policy/revisions/2/diff").json()
    assert diff["differences"] == [{"name": "max_retention", "before": 3 * 86400, "after": 9 * 86400}]
    assert staff.get("policy/revisions/1/diff").json()["differences"] == []
    assert staff.get("policy/revisions/1").json()["current"] is False


def test_a_revision_that_does_not_exist_is_not_found(staff):
    assert staff.get("policy/revisions/9").json()["code"] == "policy_revision_missing"


@pytest.mark.parametrize("path", ["policy", "policy/revisions", "policy/revisions/1", "policy/revisions/1/diff"])
def test_who_is_not_staff_sees_no_policy_whatever_the_role(house, path):
    policy()
    assert Api.of_user(house.user(Role.ADMIN)).get(path).status_code == 404


def test_a_token_of_staff_without_the_scope_to_read_sees_no_policy(house):
    policy()
    member = house.members[Role.ADMIN]
    member.user.is_staff = True
    member.user.save()
    assert Api.of_token(member, Scope.TASKS).get("policy").status_code == 403
    assert Api.of_token(member, Scope.READ).get("policy").status_code == 200
