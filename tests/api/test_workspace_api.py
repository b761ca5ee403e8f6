"""Who you are, repositories, tokens, and what the deployment says of itself."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from drf_spectacular.generators import SchemaGenerator

from sandbox_supervisor.protocol import codec
from tasks_app.services import clock
from tests.api.clients import Api
from tests.git_remotes import Project, make_project
from tests.task_rows import House, make_house
from workspaces_app.models import AllowedRoot, ApiToken, AuditEvent, Membership, Repository
from workspaces_app.rest import throttles
from workspaces_app.services import audit, tokens
from workspaces_app.states import Role, Scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def admin(house: House) -> Api:
    return Api.of_user(house.user(Role.ADMIN))


# --- me ---


def test_a_session_says_who_it_is_and_that_no_scope_limits_it(api):
    assert api.get("me").json() == {
        "username": "main-operator",
        "is_staff": False,
        "memberships": [{"workspace": "main", "name": "Main", "role": "operator"}],
        "scopes": None,
    }


def test_a_token_says_its_scopes_and_sees_its_one_workspace(house):
    other = make_house("other")
    Membership.objects.create(workspace=other.workspace, user=house.user(), role=Role.ADMIN)
    body = Api.of_token(house.members[Role.OPERATOR], Scope.READ, Scope.TASKS).get("me").json()
    assert body["scopes"] == ["read", "tasks"]
    assert [membership["workspace"] for membership in body["memberships"]] == ["main"]


# --- repositories ---


def test_a_repository_is_registered_once(admin, house, project):
    AllowedRoot.objects.create(workspace=house.workspace, path=str(project.remote.parent))
    body = {"slug": "tools", "clone_url": str(project.remote)}
    first, second = admin.post("repositories", body), admin.post("repositories", body)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] == second.json()["id"]
    assert first.json()["push_url"] == str(project.remote)
    assert {row["slug"] for row in admin.get("repositories").json()["data"]} == {"project", "tools"}
    assert admin.get(f"repositories/{first.json()['id']}").json() == first.json()


def test_a_slug_that_has_another_address_is_a_conflict(admin, house, project):
    AllowedRoot.objects.create(workspace=house.workspace, path=str(project.remote.parent))
    response = admin.post("repositories", {"slug": "project", "clone_url": str(project.remote)})
    assert (response.status_code, response.json()["code"]) == (409, "slug_taken")


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("--upload-pack=x", "url_malformed"),
        ("ext::sh -c id", "url_malformed"),
        ("https://user:secret@example.org/x", "url_credentials"),
        ("https://127.0.0.1/x", "remote_private"),
        ("http://example.org/x", "url_scheme"),
        ("/etc", "path_not_allowed"),
    ],
)
def test_an_address_that_may_not_be_used_is_refused_without_echoing_secrets(admin, url, code):
    response = admin.post("repositories", {"slug": "x", "clone_url": url})
    assert (response.status_code, response.json()["code"]) == (422, code)
    assert "secret" not in response.content.decode()
    assert Repository.objects.count() == 1


def test_only_admins_register_repositories(house):
    for role in (Role.VIEWER, Role.OPERATOR, Role.MAINTAINER):
        response = Api.of_user(house.user(role)).post("repositories", {"slug": "x", "clone_url": "/x"})
        assert response.status_code == 403


def test_a_repository_of_another_workspace_does_not_exist(api):
    assert api.get(f"repositories/{make_house('other').repository.pk}").status_code == 404


# --- tokens ---


def test_a_token_is_shown_once_and_works_within_its_scopes(api):
    response = api.post("tokens", {"label": "ci", "scopes": ["read"]})
    made = response.json()
    assert response.status_code == 201
    assert made["token"].startswith("csn_")
    assert "token" not in api.get("tokens").json()["data"][0]
    assert Api.of_text(made["token"]).get("me").json()["scopes"] == ["read"]
    assert AuditEvent.objects.filter(verb="token.created", object_id=made["id"]).exists()


def test_the_text_of_a_token_is_nowhere_in_the_database(api):
    text = api.post("tokens", {"label": "ci", "scopes": ["read"]}).json()["token"]
    secret = text.split("_")[2]
    row = ApiToken.objects.get()
    assert secret not in "".join(str(getattr(row, field.attname)) for field in row._meta.concrete_fields)


def test_a_revoked_token_ends_at_once_and_revoking_again_is_safe(api):
    made = api.post("tokens", {"label": "ci", "scopes": ["read"]}).json()
    assert [api.call("DELETE", f"tokens/{made['id']}").status_code for _ in range(2)] == [204, 204]
    assert Api.of_text(made["token"]).get("me").status_code == 401


def test_a_token_makes_no_token_that_may_do_more(house):
    api = Api.of_token(house.members[Role.ADMIN], Scope.WORKSPACE)
    response = api.post("tokens", {"label": "more", "scopes": ["tasks"]})
    assert (response.status_code, response.json()["code"]) == (403, "scope_escalation")
    assert api.post("tokens", {"label": "same", "scopes": ["workspace"]}).status_code == 201


def test_a_token_makes_no_token_that_lives_longer_than_itself(house):
    maker = tokens.create(
        membership=house.members[Role.ADMIN], label="x", scopes=[Scope.WORKSPACE], by=audit.SYSTEM,
        now=clock.database_now(), life=timedelta(days=1),
    )  # fmt: skip
    made = Api.of_text(maker.text).post("tokens", {"label": "heir", "scopes": ["workspace"], "days": 366}).json()
    assert datetime.fromisoformat(made["expires_at"]) == maker.token.expires_at


@pytest.mark.parametrize(
    ("asked", "given"),
    [([], ["127.0.0.0/8", "::1/128"]), (["127.0.0.1/32"], ["127.0.0.1/32"]), (["::1"], ["::1/128"]),
     (["0.0.0.0/0"], None), (["10.0.0.0/8"], None), (["127.0.0.1", "10.0.0.0/8"], None), (["::/0"], None)],
)  # fmt: skip
def test_a_token_makes_no_token_for_networks_that_it_is_not_bound_to(house, asked, given):
    maker = tokens.create(
        membership=house.members[Role.ADMIN], label="x", scopes=[Scope.WORKSPACE], by=audit.SYSTEM,
        now=clock.database_now(), cidrs=["127.0.0.0/8", "::1"],
    )  # fmt: skip
    response = Api.of_text(maker.text).post("tokens", {"label": "heir", "scopes": ["workspace"], "cidrs": asked})
    body = response.json()
    if given is None:
        assert (response.status_code, body["code"]) == (403, "network_escalation")
    else:
        assert (response.status_code, body["cidrs"]) == (201, given)


@pytest.mark.parametrize("label", [" \t", "\x00", "a\x1b[31mred", "\u202eright to left"])
def test_a_label_that_cannot_be_shown_is_refused(api, label):
    response = api.post("tokens", {"label": label, "scopes": ["read"]})
    assert (response.status_code, response.json()["code"]) == (422, "token_label")


def test_a_token_and_a_repository_of_another_workspace_look_as_if_there_were_none(house):
    stranger = Api.of_user(make_house("other").user(Role.ADMIN))
    made = Api.of_user(house.user(Role.VIEWER)).post("tokens", {"label": "x", "scopes": ["read"]}).json()
    for there, nowhere in (
        (stranger.call("DELETE", f"tokens/{made['id']}"), stranger.call("DELETE", "tokens/nothing")),
        (stranger.get(f"repositories/{house.repository.pk}"), stranger.get("repositories/rep_nothing")),
    ):
        assert there.status_code == 404
        assert _without_id(there) == _without_id(nowhere)


def _without_id(response):
    return {name: value for name, value in response.json().items() if name != "request_id"}


def test_another_members_token_is_revoked_by_an_admin_only(house, admin):
    made = Api.of_user(house.user(Role.VIEWER)).post("tokens", {"label": "x", "scopes": ["read"]}).json()
    assert Api.of_user(house.user(Role.MAINTAINER)).call("DELETE", f"tokens/{made['id']}").status_code == 403
    stranger = Api.of_user(make_house("other").user(Role.ADMIN))
    assert stranger.call("DELETE", f"tokens/{made['id']}").status_code == 404
    assert admin.call("DELETE", f"tokens/{made['id']}").status_code == 204


def test_members_see_their_own_tokens_only(house, api, admin):
    api.post("tokens", {"label": "mine", "scopes": ["read"]})
    assert admin.get("tokens").json()["data"] == []


@pytest.mark.parametrize(
    "body",
    [{"label": "x", "scopes": []}, {"label": "x", "scopes": ["root"]}, {"label": "", "scopes": ["read"]},
     {"label": "x", "scopes": ["read"], "days": 367}, {"label": "x", "scopes": ["read"], "days": 0},
     {"label": "x", "scopes": ["read"], "cidrs": ["nonsense"]}],
)  # fmt: skip
def test_a_token_beyond_the_rules_is_refused(api, body):
    assert api.post("tokens", body).status_code in {400, 422}
    assert not ApiToken.objects.exists()


def test_a_token_for_another_network_is_refused(api):
    made = api.post("tokens", {"label": "x", "scopes": ["read"], "cidrs": ["10.0.0.0/8"]}).json()
    assert Api.of_text(made["token"]).get("me").status_code == 401


# --- the deployment ---


def test_the_deployment_says_what_it_is(api):
    body = api.get("meta").json()
    assert (body["name"], body["api"], body["protocol"]) == ("Caisson", "v1", 1)
    assert body["providers"] == ["local"]


@pytest.mark.parametrize("name", ["flow", "event", "snapshot", "command"])
def test_schemas_are_served(api, name):
    body = api.get(f"schemas/{name}.v1.json").json()
    assert "$defs" in body or "properties" in body


def test_a_schema_that_does_not_exist_names_those_that_do(api):
    assert "snapshot" in api.get("schemas/nothing").json()["detail"]


def test_the_description_of_the_api_is_served_to_everybody(db):
    response = Api.anonymous().get("schema")
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert response.json() == json.loads(codec.encode(SchemaGenerator().get_schema(request=None, public=True)))


def test_who_asks_for_the_description_too_often_is_told_to_wait(db, monkeypatch):
    monkeypatch.setitem(throttles.RATES, "read", throttles.Rate(1, seconds=10**9))
    assert [Api.anonymous().get("schema").status_code for _ in range(2)] == [200, 429]


def test_a_process_that_answers_is_alive(db):
    assert Api.anonymous().get("/livez").json() == {"ready": True, "checks": {}}


def test_a_product_whose_sweeps_never_ran_is_not_ready(db):
    response = Api.anonymous().get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"]["database"] == "ok"
    assert response.json()["checks"]["sweep contact"] == "has never run"


def test_a_product_whose_sweeps_run_is_ready(db):
    from tasks_app.services import clock, leases, sweeps
    from tasks_app.timetable import TIMETABLE

    for name in TIMETABLE:
        leases.tick(f"swept:{name}", now=clock.database_now(), patience=sweeps.LATE_AFTER * TIMETABLE[name].period)
    response = Api.anonymous().get("/readyz")
    assert response.status_code == 200, response.content


def test_a_redis_that_is_away_is_said_and_nothing_breaks(db, settings):
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
    }
    response = Api.anonymous().get("/readyz")
    assert response.status_code == 503
    assert "does not answer" in response.json()["checks"]["redis"]
