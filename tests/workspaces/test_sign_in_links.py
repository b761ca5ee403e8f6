from datetime import timedelta

import pytest
from django.utils import timezone

from tests.task_rows import make_house
from workspaces_app.errors import Unauthenticated
from workspaces_app.models import AuditEvent, SignInLink
from workspaces_app.services import audit, sign_in_links
from workspaces_app.states import Role, Verb

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def user():
    return make_house().user(Role.ADMIN)


def link_for(user):
    return sign_in_links.create(user=user, by=audit.SYSTEM, now=NOW)


def test_a_link_signs_its_user_in(user):
    assert sign_in_links.redeem(link_for(user), now=NOW) == user


def test_a_link_works_once(user):
    link = link_for(user)
    sign_in_links.redeem(link, now=NOW)
    with pytest.raises(Unauthenticated, match="works once"):
        sign_in_links.redeem(link, now=NOW)


def test_a_link_ends_after_a_quarter_of_an_hour(user):
    with pytest.raises(Unauthenticated):
        sign_in_links.redeem(link_for(user), now=NOW + timedelta(minutes=15))


def test_a_link_of_a_deactivated_user_is_refused(user):
    link = link_for(user)
    user.is_active = False
    user.save(update_fields=["is_active"])
    with pytest.raises(Unauthenticated):
        sign_in_links.redeem(link, now=NOW)


@pytest.mark.parametrize("text", ["", "csl_", "csn_abc", "csl_" + "x" * 5000, "\x00"])
def test_nonsense_is_refused(text):
    with pytest.raises(Unauthenticated):
        sign_in_links.redeem(text, now=NOW)


def test_signing_in_leaves_a_trace_without_the_key(user):
    link = link_for(user)
    sign_in_links.redeem(link, now=NOW)
    assert AuditEvent.objects.filter(verb=Verb.SIGNED_IN, actor=f"user:{user.username}").count() == 1
    assert link[20:60] not in str(list(AuditEvent.objects.values()) + list(SignInLink.objects.values()))
