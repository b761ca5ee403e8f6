import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from policy_app.services import publish
from policy_app.values import PolicyValues
from registry_app.models import Driver, DriverVersion
from tests.task_rows import make_house, policy
from workspaces_app.access import actor_of_user
from workspaces_app.models import (
    AllowedRoot,
    ApiToken,
    AuditEvent,
    Membership,
    Repository,
    SignInLink,
    User,
    Workspace,
)
from workspaces_app.rest import throttles
from workspaces_app.services import audit, bootstrap, repositories, tokens
from workspaces_app.services.audit import SYSTEM
from workspaces_app.states import Role, Scope, Verb

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at")]


@pytest.fixture
def client():
    client = Client(HTTP_HOST="localhost")
    client.force_login(bootstrap.ensure_workspace_and_admin().admin)
    return client


def page(client, model, name="changelist", *arguments):
    answer = client.get(reverse(f"admin:workspaces_app_{model}_{name}", args=arguments))
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_superuser_sees_no_repository_of_a_workspace_they_do_not_belong_to(client):
    house = make_house("elsewhere", remote="/srv/secret-project.git")
    assert "secret-project" not in page(client, "repository")
    assert client.get(reverse("admin:workspaces_app_repository_change", args=[house.repository.pk])).status_code == 302


def test_the_admin_shows_no_digest_of_a_token(client):
    first = bootstrap.ensure_workspace_and_admin()
    made = tokens.create(membership=first.membership, label="ci", scopes=[Scope.READ], by=SYSTEM, now=timezone.now())
    text = page(client, "apitoken", "change", made.token.pk)
    assert "ci" in text
    assert made.token.digest not in text


@pytest.mark.parametrize("model", [Repository, ApiToken, AuditEvent])
def test_rows_with_rules_of_their_own_cannot_be_added_or_removed_in_the_admin(client, model, rf):
    request = rf.get("/")
    request.user = User.objects.get(username="admin")
    page_of = admin.site.get_model_admin(model)
    assert not page_of.has_add_permission(request)
    assert not page_of.has_delete_permission(request)


def test_sign_in_links_are_not_in_the_admin_at_all():
    assert not admin.site.is_registered(SignInLink)


def test_giving_somebody_another_role_in_the_admin_leaves_a_trace(client):
    house = make_house("elsewhere")
    membership = house.members[Role.VIEWER]
    url = reverse("admin:workspaces_app_membership_change", args=[membership.pk])
    fields = {"workspace": house.workspace.pk, "user": membership.user_id, "role": Role.OPERATOR}
    assert client.post(url, fields).status_code == 302
    event = AuditEvent.objects.get(verb=Verb.MEMBER_CHANGED)
    assert (event.actor, event.workspace_id) == ("user:admin", house.workspace.pk)
    assert (event.before, event.after) == (
        {"username": "elsewhere-viewer", "role": "viewer"},
        {"username": "elsewhere-viewer", "role": "operator"},
    )


def test_a_membership_cannot_be_moved_with_its_tokens_to_somebody_else_or_elsewhere(client):
    house, other = make_house("elsewhere"), make_house("other")
    membership = house.members[Role.VIEWER]
    url = reverse("admin:workspaces_app_membership_change", args=[membership.pk])
    fields = {"workspace": other.workspace.pk, "user": other.user(Role.ADMIN).pk, "role": Role.VIEWER}
    assert client.post(url, fields).status_code == 302
    membership.refresh_from_db()
    assert (membership.workspace, membership.user.username) == (house.workspace, "elsewhere-viewer")


def test_taking_somebody_out_in_the_admin_leaves_a_trace(client):
    membership = make_house("elsewhere").members[Role.VIEWER]
    url = reverse("admin:workspaces_app_membership_delete", args=[membership.pk])
    assert client.post(url, {"post": "yes"}).status_code == 302
    event = AuditEvent.objects.get(verb=Verb.MEMBER_REMOVED)
    assert (event.before, event.after) == ({"username": "elsewhere-viewer", "role": "viewer"}, None)


def test_a_new_workspace_leaves_a_trace(client):
    fields = {"slug": "second", "name": "Second"}
    assert client.post(reverse("admin:workspaces_app_workspace_add"), fields).status_code == 302
    assert AuditEvent.objects.get(object_id=Workspace.objects.get(slug="second").pk).verb == Verb.WORKSPACE_CREATED


@pytest.mark.parametrize("password", ["short-one", "newcomer-newcomer", "123456789012", "qwerty123456"])
def test_a_password_that_is_easily_guessed_is_refused(client, password):
    fields = {"username": "newcomer-newcomer", "usable_password": "true", "password1": password, "password2": password}
    answer = client.post(reverse("admin:workspaces_app_user_add"), fields)
    assert answer.context["errors"]
    assert not User.objects.filter(username="newcomer-newcomer").exists()


def test_a_person_is_never_removed_in_the_admin(client):
    user = User.objects.create(username="without-history")
    url = reverse("admin:workspaces_app_user_delete", args=[user.pk])
    assert client.post(url, {"post": "yes"}).status_code == 403
    client.post(
        reverse("admin:workspaces_app_user_changelist"), {"action": "delete_selected", "_selected_action": user.pk}
    )
    assert User.objects.filter(pk=user.pk).exists()


def test_an_allowed_root_is_taken_back_with_a_trace(client, tmp_path):
    first = bootstrap.ensure_workspace_and_admin()
    root = repositories.allow_root(workspace=first.workspace, path=str(tmp_path), by=actor_of_user(first.admin))
    url = reverse("admin:workspaces_app_allowedroot_delete", args=[root.pk])
    assert client.post(url, {"post": "yes"}).status_code == 302
    assert not AllowedRoot.objects.exists()
    event = AuditEvent.objects.get(verb=Verb.ROOT_FORBIDDEN)
    assert (event.actor, event.before, event.workspace_id) == (
        "user:admin",
        {"path": str(tmp_path)},
        first.workspace.pk,
    )


def test_an_allowed_root_of_another_workspace_is_not_there_to_be_taken_back(client):
    root = AllowedRoot.objects.create(workspace=make_house("elsewhere").workspace, path="/srv")
    client.post(reverse("admin:workspaces_app_allowedroot_delete", args=[root.pk]), {"post": "yes"})
    assert AllowedRoot.objects.filter(pk=root.pk).exists()


# --- who sees what ---

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7 }}\u202e\x1b[31m"
MARKS = ("<script>alert(1)", "<img src=x")


def staff(membership):
    """Give a member of staff every right to look that Django knows, and nothing more."""
    user = membership.user
    User.objects.filter(pk=user.pk).update(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client = Client(HTTP_HOST="localhost")
    client.force_login(user)
    return client


def fill(house):
    """Put hostile text wherever the admin shows text."""
    policy()
    token = tokens.create(
        membership=house.members[Role.ADMIN], label="x", scopes=[Scope.READ], by=SYSTEM, now=timezone.now()
    ).token
    User.objects.filter(pk=house.user(Role.MAINTAINER).pk).update(
        username=HOSTILE, first_name=HOSTILE, last_name=HOSTILE, email=HOSTILE
    )
    Workspace.objects.filter(pk=house.workspace.pk).update(name=HOSTILE)
    Repository.objects.update(clone_url=HOSTILE, push_url=HOSTILE, default_branch=HOSTILE)
    AllowedRoot.objects.create(workspace=house.workspace, path=HOSTILE)
    ApiToken.objects.update(label=HOSTILE, scopes=[HOSTILE], cidrs=[HOSTILE])
    audit.record(
        SYSTEM, Verb.SIGNED_IN, kind="x", object_id=HOSTILE[:64], workspace_id=house.workspace.pk,
        before={HOSTILE: 1}, after={"a": [HOSTILE]},
    )  # fmt: skip
    publish.publish_revision(
        based_on=1, message=HOSTILE, author=actor_of_user(bootstrap.ensure_workspace_and_admin().admin),
        values=PolicyValues(live_task_quota=3), now=timezone.now(),
    )  # fmt: skip
    driver = Driver.objects.create(name=HOSTILE[:63], description=HOSTILE)
    DriverVersion.objects.create(driver=driver, number=1, canonical=HOSTILE, digest=HOSTILE[:71])
    return token


def pages():
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        yield reverse(f"{name}_changelist")
        yield reverse(f"{name}_add")
        places = [quote(row.pk) for row in model._default_manager.all()]
        yield from (reverse(f"{name}_change", args=[place]) for place in places)
        yield from (reverse(f"{name}_{kind}", args=[place]) for kind in ("history", "delete") for place in places[-1:])
    yield reverse("admin:index")
    yield reverse("admin:policy_app_draft")


@pytest.mark.parametrize("who", ["superuser", "staff"])
def test_no_page_of_the_admin_fails_or_shows_a_strangers_text_as_markup(client, who):
    house = make_house("elsewhere")
    token = fill(house)
    Membership.objects.create(workspace=house.workspace, user=User.objects.get(username="admin"), role=Role.ADMIN)
    looking = client if who == "superuser" else staff(house.members[Role.VIEWER])
    seen = 0
    for url in pages():
        answer = looking.get(url)
        assert answer.status_code in {200, 302, 403}, url
        text = answer.content.decode()
        assert not any(mark in text for mark in MARKS), url
        assert token.digest not in text, url
        seen += "&lt;script&gt;alert(1)" in text
    assert seen > 8


def test_a_member_of_staff_who_may_only_look_changes_nothing(client):
    house = make_house("elsewhere")
    fill(house)
    looking = staff(house.members[Role.ADMIN])
    before = [list(model._default_manager.values()) for model in admin.site._registry]
    for url in pages():
        looking.post(url, {"post": "yes", "slug": "x", "name": "x", "role": "admin", "is_superuser": "on"})
    assert [list(model._default_manager.values()) for model in admin.site._registry] == before


@pytest.mark.parametrize(("model", "needed"), [("apitoken", Role.ADMIN), ("auditevent", Role.ADMIN)])
def test_tokens_and_trail_of_a_workspace_are_shown_to_those_who_administer_it(client, model, needed):
    house = make_house("elsewhere")
    made = tokens.create(
        membership=house.members[Role.VIEWER], label="their-token", scopes=[Scope.READ], by=SYSTEM, now=timezone.now()
    )
    word = "their-token" if model == "apitoken" else made.token.key_id
    shown = {role: word in page(staff(house.members[role]), model) for role in Role}
    assert shown == {role: role.rank >= needed.rank for role in Role}
    assert word not in page(client, model)


def test_a_password_cannot_be_guessed_at_speed(monkeypatch):
    monkeypatch.setitem(throttles.RATES, "password", throttles.Rate(2, seconds=10**9))
    User.objects.create_superuser("vera", password="a quite long phrase")
    guesses = ["one", "two", "a quite long phrase"]

    def attempt(password: str, address: str) -> Client:
        browser = Client(HTTP_HOST="localhost", REMOTE_ADDR=address)
        browser.post(reverse("admin:login"), {"username": "vera", "password": password})
        return browser

    assert not any("_auth_user_id" in attempt(guess, "192.0.2.1").session for guess in guesses)
    assert "_auth_user_id" in attempt(guesses[-1], "192.0.2.2").session
