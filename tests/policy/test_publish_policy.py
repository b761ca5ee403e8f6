import threading
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import override_settings
from django.utils import timezone

from policy_app.models import PolicyRevision, RuntimePolicy
from policy_app.reading import holders, shown_differences
from policy_app.services import publish
from policy_app.services.seed import ensure_first_revision
from policy_app.values import MIB, NAMES, PolicyValues, contradictions, differences
from tests.task_rows import make_house
from workspaces_app.access import actor_of_user
from workspaces_app.errors import Conflict, Forbidden, NotVisible, Refused, Unavailable
from workspaces_app.models import AuditEvent, User
from workspaces_app.services import bootstrap
from workspaces_app.states import Role, Verb

pytestmark = pytest.mark.django_db
NOW = timezone.now()
VALUES = PolicyValues()
LONGER = replace(VALUES, max_retention=timedelta(days=9))


@pytest.fixture
def author():
    return actor_of_user(bootstrap.ensure_workspace_and_admin().admin)


@pytest.fixture
def first():
    return publish.seed_revision(VALUES, now=NOW)


def publish_longer(author, **more):
    given = {"based_on": 1, "message": "Keep longer", "author": author, "values": LONGER, "now": NOW}
    return publish.publish_revision(**(given | more))


def test_without_a_policy_the_reader_is_told_so():
    with pytest.raises(Unavailable):
        publish.current_revision()


def test_the_first_revision_is_seeded_once(first):
    assert publish.seed_revision(LONGER, now=NOW) == first
    assert first.values == VALUES


def test_publishing_moves_the_pointer_and_keeps_the_history(author, first):
    second = publish_longer(author)
    assert publish.current_revision() == second
    assert (second.number, second.parent, second.author.username) == (2, first, "admin")
    assert PolicyRevision.objects.get(number=1).values == VALUES


def test_what_was_published_reads_back_typed(author, first):
    values = replace(
        VALUES, cpu_limit=Decimal("3.250"), memory_limit=8192 * MIB, egress_allow=("pypi.org",), archive_sessions=True
    )
    publish_longer(author, values=values)
    assert publish.current_revision().values == values


def test_an_edit_based_on_an_older_revision_loses_nothing(author, first):
    publish_longer(author)
    with pytest.raises(Conflict) as caught:
        publish_longer(author, values=replace(VALUES, live_task_quota=3))
    assert caught.value.facts == {"based_on": 1, "current": 2}
    assert publish.current_revision().values == LONGER


@pytest.mark.parametrize("message", ["", "  ", "\n"])
def test_a_revision_needs_a_message(author, first, message):
    with pytest.raises(Refused) as caught:
        publish_longer(author, message=message)
    assert caught.value.code == "policy_message_missing"


def test_publishing_what_is_there_is_refused(author, first):
    with pytest.raises(Refused) as caught:
        publish_longer(author, values=VALUES)
    assert caught.value.code == "policy_unchanged"


def test_every_contradiction_is_named_at_once(author, first):
    wrong = replace(VALUES, cpu_request=Decimal(9), memory_request=VALUES.memory_limit + 1, max_retention=timedelta(0))
    with pytest.raises(Refused) as caught:
        publish_longer(author, values=wrong)
    assert set(caught.value.facts["errors"]) == {"cpu_request", "memory_request", "max_retention"}


def test_a_provider_that_is_not_installed_is_refused(author, first):
    with pytest.raises(Refused, match="provider is not installed; installed: local"):
        publish_longer(author, values=replace(VALUES, provider="kubernetes"))


@override_settings(PROVIDERS=("local", "kubernetes"))
def test_an_installed_provider_may_be_chosen(author, first):
    assert publish_longer(author, values=replace(VALUES, provider="kubernetes")).provider == "kubernetes"


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"connection_grace": timedelta(seconds=59)}, "connection_grace"),
        ({"egress_allow": ("https://pypi.org",)}, "egress_allow"),
        ({"live_task_quota": 0}, "live_task_quota"),
        ({"park_interval": timedelta(seconds=-1)}, "park_interval"),
        ({"cpu_request": Decimal(0)}, "cpu_request"),
        ({"egress_allow": ("pypi.org evil.example",)}, "egress_allow"),
        ({"egress_allow": ("",)}, "egress_allow"),
        ({"live_task_quota": 1_000_001}, "live_task_quota"),
        ({"max_parallel_attempts": 2**63}, "max_parallel_attempts"),
        ({"runtime_class": "two words"}, "runtime_class"),
        ({"storage_class": "a\nb"}, "storage_class"),
        ({"template_reference": "a\x00"}, "template_reference"),
        ({"runner_image": "python:latest"}, "runner_image"),
        ({"runner_image": "sha256:" + "A" * 64}, "runner_image"),
        ({"runner_image": "a b@sha256:" + "a" * 64}, "runner_image"),
    ],
)
def test_values_that_cannot_be_are_named_by_column(change, column):
    assert column in contradictions(replace(VALUES, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"runner_image": ""},
        {"runner_image": "sha256:" + "a" * 64},
        {"runner_image": "registry.example.org:5000/caisson/runner@sha256:" + "a" * 64},
        {"egress_allow": ("pypi.org", "*.example.org", "localhost")},
        {"runtime_class": "gvisor", "storage_class": "fast-ssd"},
    ],
)
def test_values_that_can_be_are_accepted(change):
    assert not contradictions(replace(VALUES, **change))


def test_the_least_grace_is_allowed():
    assert not contradictions(replace(VALUES, connection_grace=timedelta(seconds=60)))


def test_rolling_back_publishes_a_copy(author, first):
    publish_longer(author)
    third = publish.roll_back(to=1, based_on=2, message="Back", author=author, now=NOW)
    assert (third.number, third.values) == (3, VALUES)
    assert PolicyRevision.objects.count() == 3


def test_rolling_back_to_nothing_is_refused(author, first):
    with pytest.raises(Refused) as caught:
        publish.roll_back(to=7, based_on=1, message="Back", author=author, now=NOW)
    assert caught.value.code == "policy_revision_missing"


def test_an_admin_of_a_workspace_cannot_publish(first):
    with pytest.raises(NotVisible):
        publish_longer(actor_of_user(make_house().user(Role.ADMIN)))


def test_staff_without_the_permission_cannot_publish(first):
    staff = User.objects.create(username="ops", is_staff=True)
    with pytest.raises(Forbidden):
        publish_longer(actor_of_user(staff))


def test_publishing_leaves_a_trace_of_what_changed(author, first):
    publish_longer(author)
    event = AuditEvent.objects.get(verb=Verb.POLICY_PUBLISHED)
    assert (event.actor, event.before, event.after) == (
        "user:admin",
        {"max_retention": "3 days, 0:00:00"},
        {"max_retention": "9 days, 0:00:00"},
    )


def test_a_difference_is_shown_as_a_person_would_write_it(author, first):
    second = publish_longer(author, values=replace(LONGER, memory_limit=1536 * MIB, archive_sessions=True))
    assert shown_differences(first.values, second.values) == [
        {"name": "memory_limit", "before": "4Gi", "after": "1536Mi"},
        {"name": "max_retention", "before": "3d", "after": "9d"},
        {"name": "archive_sessions", "before": "no", "after": "yes"},
    ]


def test_equal_values_do_not_differ():
    assert differences(VALUES, PolicyValues()) == ()


def test_nobody_holds_a_revision_that_no_task_froze(first):
    assert holders(first) == 0


# --- the database itself ----------------------------------------------------------------------------------------------


def refused(action, because):
    with pytest.raises(IntegrityError, match=because), transaction.atomic():
        action()


IMMUTABLE = "policy_app_policyrevision is immutable"


def test_a_revision_cannot_be_changed(first):
    refused(lambda: PolicyRevision.objects.filter(pk=first.pk).update(message="other"), IMMUTABLE)


@pytest.mark.parametrize("column", ["number", "published_at", "provider", "max_retention", "author_id", "parent_id"])
def test_no_column_of_a_revision_can_be_changed(first, column):
    def raw():
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE policy_app_policyrevision SET {column} = {column}")  # noqa: S608

    refused(raw, IMMUTABLE)


def test_a_revision_cannot_be_deleted(author, first):
    publish_longer(author)

    def raw():
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM policy_app_policyrevision WHERE number = 1")

    refused(raw, IMMUTABLE)
    assert PolicyRevision.objects.count() == 2


def test_there_is_no_second_policy_row(first):
    refused(lambda: RuntimePolicy.objects.create(id=2, current=first), "runtime_policy_is_one_row")


def test_a_revision_without_a_message_cannot_be_stored(first):
    columns = {name: getattr(first, name) for name in NAMES}
    refused(
        lambda: PolicyRevision.objects.create(number=2, parent=first, message="", published_at=NOW, **columns),
        "policy_revision_has_message",
    )


def test_a_later_revision_without_a_parent_cannot_be_stored(first):
    columns = {name: getattr(first, name) for name in NAMES}
    refused(
        lambda: PolicyRevision.objects.create(number=2, message="x", published_at=NOW, **columns),
        "policy_revision_has_parent_but_the_first",
    )


# --- the image that this machine builds -------------------------------------------------------------------------------


@override_settings(SANDBOX_IMAGE="sha256:" + "a" * 64)
def test_the_first_revision_names_the_current_image():
    assert ensure_first_revision().runner_image == "sha256:" + "a" * 64


def test_a_new_image_becomes_a_new_revision_and_only_once():
    with override_settings(SANDBOX_IMAGE="sha256:" + "a" * 64):
        ensure_first_revision()
    with override_settings(SANDBOX_IMAGE="sha256:" + "b" * 64):
        assert ensure_first_revision().number == 2
        assert ensure_first_revision().number == 2
    assert publish.current_revision().runner_image == "sha256:" + "b" * 64


@override_settings(SANDBOX_IMAGE="sha256:" + "b" * 64)
def test_following_the_image_keeps_what_people_published(author):
    with override_settings(SANDBOX_IMAGE="sha256:" + "a" * 64):
        ensure_first_revision()
    publish_longer(author, values=replace(publish.current_revision().values, max_retention=timedelta(days=9)))
    assert ensure_first_revision().max_retention == timedelta(days=9)


@pytest.mark.django_db(transaction=True)
def test_of_two_publications_at_one_moment_exactly_one_wins():
    author = actor_of_user(bootstrap.ensure_workspace_and_admin().admin)
    publish.seed_revision(VALUES, now=NOW)
    barrier = threading.Barrier(4, timeout=20)
    outcomes = []

    def race(quota):
        barrier.wait()
        try:
            publish_longer(author, values=replace(VALUES, live_task_quota=quota))
            outcomes.append("published")
        except Conflict:
            outcomes.append("conflict")
        finally:
            connection.close()

    racers = [threading.Thread(target=race, args=(quota,)) for quota in (31, 32, 33, 34)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=60)
    assert sorted(outcomes) == ["conflict", "conflict", "conflict", "published"]
    assert publish.current_revision().number == 2
