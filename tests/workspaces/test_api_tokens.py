from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from tests.task_rows import make_house
from workspaces_app import keys
from workspaces_app.access import actor_of_user
from workspaces_app.errors import Forbidden, NotVisible, Refused, Unauthenticated
from workspaces_app.models import ApiToken, AuditEvent
from workspaces_app.services import audit, tokens
from workspaces_app.states import Role, Scope, Verb

pytestmark = pytest.mark.django_db
NOW = timezone.now()
HOME = "127.0.0.1"


@pytest.fixture
def house():
    return make_house()


def make(house, role=Role.OPERATOR, **more: Any) -> tokens.NewToken:
    given: dict[str, Any] = {"label": "ci", "scopes": [Scope.READ], "by": audit.SYSTEM, "now": NOW} | more
    return tokens.create(membership=house.members[role], **given)


def test_a_token_is_recognised_as_its_member(house):
    actor = tokens.recognise(make(house).text, address=HOME, now=NOW)
    assert (actor.user_id, actor.roles, actor.scopes) == (
        house.user().pk,
        {house.workspace.pk: Role.OPERATOR},
        frozenset({Scope.READ}),
    )


def test_the_database_does_not_hold_the_secret(house):
    made = make(house)
    key = keys.read(made.text, "csn")
    assert key is not None
    row = ApiToken.objects.values().get()
    assert key.secret not in str(row)
    assert key.secret not in str(list(AuditEvent.objects.values()))


def test_a_token_expires_after_ninety_days_unless_said_otherwise(house):
    text = make(house).text
    tokens.recognise(text, address=HOME, now=NOW + timedelta(days=90) - timedelta(seconds=1))
    with pytest.raises(Unauthenticated):
        tokens.recognise(text, address=HOME, now=NOW + timedelta(days=90))


@pytest.mark.parametrize("life", [timedelta(0), timedelta(seconds=-1), timedelta(days=367)])
def test_a_token_without_an_end_in_sight_is_refused(house, life):
    with pytest.raises(Refused):
        make(house, life=life)


def test_a_token_needs_a_scope(house):
    with pytest.raises(Refused):
        make(house, scopes=[])


def test_a_revoked_token_is_refused_at_once(house):
    made = make(house)
    tokens.revoke(made.token, by=actor_of_user(house.user()), now=NOW)
    with pytest.raises(Unauthenticated):
        tokens.recognise(made.text, address=HOME, now=NOW)


def test_revoking_twice_leaves_one_trace(house):
    made = make(house)
    for _ in range(2):
        tokens.revoke(made.token, by=actor_of_user(house.user()), now=NOW)
    assert AuditEvent.objects.filter(verb=Verb.TOKEN_REVOKED).count() == 1


def test_an_admin_may_revoke_the_token_of_a_member(house):
    tokens.revoke(make(house).token, by=actor_of_user(house.user(Role.ADMIN)), now=NOW)
    assert ApiToken.objects.get().revoked_at == NOW


def test_a_maintainer_may_not_revoke_the_token_of_another(house):
    with pytest.raises(Forbidden):
        tokens.revoke(make(house).token, by=actor_of_user(house.user(Role.MAINTAINER)), now=NOW)


def test_a_stranger_does_not_see_the_token(house):
    stranger = make_house("elsewhere").user(Role.ADMIN)
    with pytest.raises(NotVisible):
        tokens.revoke(make(house).token, by=actor_of_user(stranger), now=NOW)


def test_a_token_dies_with_the_membership(house):
    text = make(house).text
    house.members[Role.OPERATOR].delete()
    with pytest.raises(Unauthenticated):
        tokens.recognise(text, address=HOME, now=NOW)


def test_a_token_dies_with_the_account(house):
    text = make(house).text
    user = house.user()
    user.is_active = False
    user.save(update_fields=["is_active"])
    with pytest.raises(Unauthenticated):
        tokens.recognise(text, address=HOME, now=NOW)


def test_a_token_follows_its_member_to_a_lower_role(house):
    text = make(house, Role.ADMIN, scopes=list(Scope)).text
    membership = house.members[Role.ADMIN]
    membership.role = Role.VIEWER
    membership.save(update_fields=["role"])
    assert tokens.recognise(text, address=HOME, now=NOW).roles[house.workspace.pk] is Role.VIEWER


@pytest.mark.parametrize(
    ("address", "fits"),
    [("10.1.2.3", True), ("10.2.0.0", False), ("2001:db8::1", True), ("2001:db9::1", False), ("", False), ("x", False)],
)
def test_a_token_is_good_only_from_its_networks(house, address, fits):
    text = make(house, cidrs=["10.1.0.0/16", "2001:db8::/32"]).text
    if fits:
        assert tokens.recognise(text, address=address, now=NOW).user_id
    else:
        with pytest.raises(Unauthenticated):
            tokens.recognise(text, address=address, now=NOW)


@pytest.mark.parametrize("cidr", ["10.0.0.1/8", "everything", "10.0.0.0/33"])
def test_a_network_that_is_none_is_refused(house, cidr):
    with pytest.raises(Refused):
        make(house, cidrs=[cidr])


def test_use_is_noted_at_most_once_a_minute(house):
    text = make(house).text
    for seconds in (0, 59, 61):
        tokens.recognise(text, address=HOME, now=NOW + timedelta(seconds=seconds))
        noted = ApiToken.objects.get().last_used_at
        assert noted is not None
        assert noted - NOW == timedelta(seconds=61 if seconds == 61 else 0)


def test_another_pepper_in_front_leaves_old_tokens_good(house):
    from django.conf import settings

    text = make(house).text
    with override_settings(TOKEN_PEPPER_RING=(("k2", "ab" * 32), *settings.TOKEN_PEPPER_RING)):
        assert tokens.recognise(text, address=HOME, now=NOW).user_id
        assert make(house).token.pepper_id == "k2"


def test_a_token_is_worthless_once_its_pepper_has_left_the_ring(house):
    text = make(house).text
    with override_settings(TOKEN_PEPPER_RING=(("k2", "ab" * 32),)), pytest.raises(Unauthenticated):
        tokens.recognise(text, address=HOME, now=NOW)


def test_the_right_id_with_another_secret_is_refused(house):
    made = make(house)
    forged = keys.Key("csn", made.token.key_id, keys.make("csn").secret)
    with pytest.raises(Unauthenticated):
        tokens.recognise(forged.text, address=HOME, now=NOW)
