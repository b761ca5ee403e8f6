import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from policy_app.models import PolicyRevision
from policy_app.services import publish
from policy_app.values import PolicyValues
from workspaces_app.models import User
from workspaces_app.services import bootstrap

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at")]
DRAFT = "/admin/policy_app/policyrevision/draft/"


@pytest.fixture
def client():
    publish.seed_revision(PolicyValues(), now=timezone.now())
    client = Client(HTTP_HOST="localhost")
    client.force_login(bootstrap.ensure_workspace_and_admin().admin)
    return client


def filled(client, **changes):
    """The form as the page gives it, with some fields changed."""
    form = client.get(DRAFT).context["form"]
    fields = {field.name: field.value() for field in form}
    posted = {name: "" if value in (None, False) else value for name, value in fields.items()}
    return posted | {"message": "Because"} | changes


def test_the_history_says_which_revision_rules(client):
    page = client.get(reverse("admin:policy_app_policyrevision_changelist")).content.decode()
    assert "revision 1" in page
    assert "First revision" in page


def test_the_form_shows_units_that_people_write(client):
    fields = filled(client)
    assert (fields["memory_limit"], fields["max_retention"]) == ("4Gi", "3d")


def test_a_look_at_the_draft_publishes_nothing_but_shows_what_changes(client):
    page = client.post(DRAFT, filled(client, max_retention="9d", preview="1")).content.decode()
    assert "<td>3d</td><td>9d</td>" in page
    assert "keep" in page
    assert PolicyRevision.objects.count() == 1


def test_publishing_from_the_form_makes_a_revision(client):
    answer = client.post(DRAFT, filled(client, max_retention="9d", publish="1"))
    assert answer.status_code == 302
    current = publish.current_revision()
    assert (current.number, current.max_retention.days, current.message) == (2, 9, "Because")


def test_publishing_over_somebody_elses_revision_is_stopped_with_the_reason(client):
    mine = filled(client, max_retention="9d", publish="1")
    client.post(DRAFT, filled(client, live_task_quota="7", publish="1"))
    page = client.post(DRAFT, mine).content.decode()
    assert "was published since you looked at revision 1" in page
    assert publish.current_revision().live_task_quota == 7
    assert publish.current_revision().max_retention.days == 3


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("memory_limit", "lots", "512Mi"),
        ("max_retention", "soon", "ISO 8601"),
        ("message", "", "This field is required"),
        ("cpu_request", "64", "must not exceed the limit"),
        ("provider", "moon", "is not installed"),
        ("runner_image", "python:latest", "sha256:"),
        ("live_task_quota", "9" * 30, "at most 1000000"),
        ("live_task_quota", "9" * 5000, "Enter a whole number"),
        ("max_parallel_attempts", "20000", "at most 10000"),
        ("cpu_limit", "NaN", "Enter a number"),
        ("memory_limit", "9" * 30, "whole number of bytes"),
        ("max_retention", "999999999d", "at most 366 days"),
        ("message", "x" * 501, "at most 500 characters"),
        ("message", "a\0b", "Null characters are not allowed"),
        ("based_on", "", "This field is required"),
    ],
)
def test_a_wrong_value_is_explained_beside_its_field(client, field, value, told):
    page = client.post(DRAFT, filled(client, **{field: value, "publish": "1"})).content.decode()
    assert told in page
    assert PolicyRevision.objects.count() == 1


def test_a_copy_of_an_earlier_revision_starts_from_its_values(client):
    client.post(DRAFT, filled(client, max_retention="9d", publish="1"))
    form = client.get(DRAFT + "?from=1").context["form"]
    assert (form["max_retention"].value(), form["based_on"].value()) == ("3d", 2)


@pytest.mark.parametrize("wanted", ["x", "99", "1; drop table", "9" * 40])
def test_a_copy_of_nothing_starts_from_the_current_revision(client, wanted):
    assert client.get(DRAFT, {"from": wanted}).context["form"]["based_on"].value() == 1


def test_a_revision_page_shows_what_it_changed_and_cannot_be_edited(client):
    client.post(DRAFT, filled(client, max_retention="9d", publish="1"))
    url = reverse("admin:policy_app_policyrevision_change", args=[publish.current_revision().pk])
    page = client.get(url).content.decode()
    assert "<td>3d</td><td>9d</td>" in page
    assert client.post(url, {"message": "other"}).status_code == 403


def test_markup_in_a_message_is_shown_as_text(client):
    client.post(DRAFT, filled(client, max_retention="9d", message="<script>alert(1)</script>", publish="1"))
    page = client.get(reverse("admin:policy_app_policyrevision_changelist")).content.decode()
    assert "<script>alert(1)</script>" not in page


def test_staff_without_the_permission_get_no_form(client):
    staff = User.objects.create(username="ops", is_staff=True)
    other = Client(HTTP_HOST="localhost")
    other.force_login(staff)
    assert other.get(DRAFT).status_code == 403
