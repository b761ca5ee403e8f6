import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from tests.task_rows import make_house
from workspaces_app.models import ApiToken, AuditEvent, Repository, SignInLink, User
from workspaces_app.services import bootstrap, tokens
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
    from django.utils import timezone

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
    assert event.after is not None
    assert (event.actor, event.after["role"], event.workspace_id) == ("user:admin", "operator", house.workspace.pk)


def test_taking_somebody_out_in_the_admin_leaves_a_trace(client):
    membership = make_house("elsewhere").members[Role.VIEWER]
    url = reverse("admin:workspaces_app_membership_delete", args=[membership.pk])
    assert client.post(url, {"post": "yes"}).status_code == 302
    assert AuditEvent.objects.filter(verb=Verb.MEMBER_REMOVED).count() == 1
