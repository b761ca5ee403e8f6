import pytest

from tests.task_rows import make_house
from workspaces_app.access import (
    IN_WORKSPACE,
    NOBODY,
    OF_DEPLOYMENT,
    Actor,
    Permission,
    actor_of_user,
    allowed,
    authorise,
)
from workspaces_app.errors import Forbidden, NotVisible, Unauthenticated
from workspaces_app.states import Role, Scope

HERE = "wsp_here"
LEAST = {
    Permission.VIEW_TASKS: Role.VIEWER,
    Permission.CREATE_TASK: Role.OPERATOR,
    Permission.STEER_TASK: Role.OPERATOR,
    Permission.DELETE_TASK: Role.MAINTAINER,
    Permission.VIEW_FLOWS: Role.VIEWER,
    Permission.PUBLISH_FLOW: Role.MAINTAINER,
    Permission.VIEW_REPOSITORIES: Role.VIEWER,
    Permission.MANAGE_REPOSITORIES: Role.ADMIN,
    Permission.MANAGE_OWN_TOKENS: Role.VIEWER,
    Permission.MANAGE_MEMBERS: Role.ADMIN,
    Permission.VIEW_AUDIT: Role.ADMIN,
}


def member(role: Role, **more) -> Actor:
    return Actor(label="user:ana", user_id=7, roles={HERE: role}, **more)


def staff(*granted: str, **more) -> Actor:
    return Actor(label="user:ops", user_id=8, is_staff=True, granted=frozenset(granted), **more)


def test_every_permission_has_a_rule_in_exactly_one_table():
    assert set(IN_WORKSPACE) | set(OF_DEPLOYMENT) == set(Permission)
    assert not set(IN_WORKSPACE) & set(OF_DEPLOYMENT)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("permission", LEAST)
def test_a_role_may_do_what_the_table_says(permission, role):
    assert allowed(member(role), permission, HERE) is (role.rank >= LEAST[permission].rank)


@pytest.mark.parametrize("permission", LEAST)
def test_another_workspace_is_not_visible_whatever_the_role(permission):
    with pytest.raises(NotVisible):
        authorise(member(Role.ADMIN), permission, "wsp_there")


@pytest.mark.parametrize("permission", LEAST)
def test_a_superuser_is_no_member_of_a_workspace(permission):
    everything = frozenset(granted for _, granted in OF_DEPLOYMENT.values())
    with pytest.raises(NotVisible):
        authorise(staff(*everything), permission, HERE)


@pytest.mark.parametrize("permission", Permission)
def test_nobody_is_asked_to_sign_in(permission):
    with pytest.raises(Unauthenticated):
        authorise(NOBODY, permission, HERE)


@pytest.mark.parametrize("permission", LEAST)
def test_a_permission_in_a_workspace_needs_the_workspace(permission):
    with pytest.raises(NotVisible):
        authorise(member(Role.ADMIN), permission, None)


@pytest.mark.parametrize("permission", OF_DEPLOYMENT)
def test_what_belongs_to_the_deployment_is_not_visible_to_members(permission):
    with pytest.raises(NotVisible):
        authorise(member(Role.ADMIN), permission, HERE)


@pytest.mark.parametrize(
    ("permission", "granted"), [(permission, granted) for permission, (_, granted) in OF_DEPLOYMENT.items() if granted]
)
def test_staff_need_the_named_permission_too(permission, granted):
    assert allowed(staff(granted), permission)
    with pytest.raises(Forbidden) as caught:
        authorise(staff(), permission)
    assert caught.value.facts == {"needed": granted}


def test_the_creator_of_a_task_may_delete_it_as_an_operator():
    authorise(member(Role.OPERATOR), Permission.DELETE_TASK, HERE, creator_id=7)


def test_an_operator_may_not_delete_the_task_of_another():
    with pytest.raises(Forbidden):
        authorise(member(Role.OPERATOR), Permission.DELETE_TASK, HERE, creator_id=9)


def test_a_creator_who_is_only_a_viewer_now_may_not_delete():
    with pytest.raises(Forbidden):
        authorise(member(Role.VIEWER), Permission.DELETE_TASK, HERE, creator_id=7)


@pytest.mark.parametrize("permission", LEAST)
def test_a_token_needs_the_scope_as_well_as_the_role(permission):
    needed = IN_WORKSPACE[permission].scope
    authorise(member(Role.ADMIN, scopes=frozenset({needed})), permission, HERE)
    with pytest.raises(Forbidden) as caught:
        authorise(member(Role.ADMIN, scopes=frozenset(Scope) - {needed}), permission, HERE)
    assert caught.value.code == "scope_missing"


def test_a_token_with_every_scope_has_no_more_than_its_members_role():
    with pytest.raises(Forbidden):
        authorise(member(Role.VIEWER, scopes=frozenset(Scope)), Permission.CREATE_TASK, HERE)


def test_a_refusal_says_which_role_is_needed():
    with pytest.raises(Forbidden, match="needs the role maintainer in the workspace; yours is operator"):
        authorise(member(Role.OPERATOR), Permission.PUBLISH_FLOW, HERE)


@pytest.mark.django_db
def test_a_person_sees_exactly_the_workspaces_they_belong_to():
    here, there = make_house("here"), make_house("there")
    actor = actor_of_user(here.user(Role.VIEWER))
    assert actor.workspaces == (here.workspace.pk,)
    assert not allowed(actor, Permission.VIEW_TASKS, there.workspace.pk)


@pytest.mark.django_db
def test_a_deactivated_person_is_nobody():
    user = make_house().user(Role.ADMIN)
    user.is_active = False
    assert actor_of_user(user) is NOBODY


@pytest.mark.django_db
def test_an_anonymous_visitor_is_nobody():
    from django.contrib.auth.models import AnonymousUser

    assert actor_of_user(AnonymousUser()) is NOBODY
