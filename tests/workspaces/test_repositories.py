from pathlib import Path

import pytest
from django.conf import settings

from tests.task_rows import make_house
from workspaces_app.access import actor_of_user
from workspaces_app.errors import Conflict, Forbidden, NotVisible, Refused
from workspaces_app.models import AllowedRoot, AuditEvent, Repository, User
from workspaces_app.services import bootstrap, repositories
from workspaces_app.states import Role, Verb

pytestmark = pytest.mark.django_db
URL = "https://forge.example/a/b.git"


@pytest.fixture
def first():
    return bootstrap.ensure_workspace_and_admin()


def register(first, **more):
    given = {"workspace": first.workspace, "slug": "b", "clone_url": URL, "by": actor_of_user(first.admin)}
    return repositories.register(**(given | {"resolve": lambda host: ("93.184.216.34",)} | more))


def test_a_repository_is_registered_with_a_trace(first):
    assert register(first).clone_url == URL
    assert AuditEvent.objects.filter(verb=Verb.REPOSITORY_REGISTERED, workspace_id=first.workspace.pk).count() == 1


def test_registering_the_same_again_gives_the_same_row(first):
    assert register(first) == register(first)


def test_a_slug_with_another_address_is_taken(first):
    register(first)
    with pytest.raises(Conflict) as caught:
        register(first, clone_url="https://forge.example/other.git")
    assert caught.value.code == "slug_taken"


def test_deliveries_go_to_the_clone_address_unless_another_is_named(first):
    assert register(first).remote == URL
    assert (
        register(first, slug="c", push_url="https://forge.example/fork.git").remote == "https://forge.example/fork.git"
    )


def test_the_push_address_is_checked_too(first):
    with pytest.raises(Refused):
        register(first, push_url="ext::sh -c id")


@pytest.mark.parametrize("slug", ["", "A", "-x", "x" * 64, "a/b", "a b", "a\n"])
def test_a_slug_that_is_none_is_refused(first, slug):
    with pytest.raises(Refused):
        register(first, slug=slug)


@pytest.mark.parametrize("branch", ["-x", "a..b", "a b", "refs/heads/x", "a.lock"])
def test_a_branch_name_that_git_could_misread_is_refused(first, branch):
    with pytest.raises(Refused):
        register(first, default_branch=branch)


def test_a_maintainer_may_not_register():
    house = make_house("other")
    with pytest.raises(Forbidden):
        repositories.register(
            workspace=house.workspace, slug="b", clone_url=URL, by=actor_of_user(house.user(Role.MAINTAINER))
        )


def test_an_admin_of_another_workspace_does_not_see_this_one(first):
    stranger = actor_of_user(make_house("other").user(Role.ADMIN))
    with pytest.raises(NotVisible):
        register(first, by=stranger)


def test_a_local_path_needs_an_allowed_root(first, tmp_path: Path):
    with pytest.raises(Refused):
        register(first, clone_url=str(tmp_path))
    repositories.allow_root(workspace=first.workspace, path=str(tmp_path), by=actor_of_user(first.admin))
    assert register(first, clone_url=str(tmp_path)).clone_url == str(tmp_path)


def test_a_root_of_one_workspace_opens_nothing_to_another(first, tmp_path: Path):
    repositories.allow_root(workspace=first.workspace, path=str(tmp_path), by=actor_of_user(first.admin))
    with pytest.raises(Refused):
        repositories.checked_address(make_house("other").workspace, str(tmp_path))


def test_allowing_a_root_twice_leaves_one_row_and_one_trace(first, tmp_path: Path):
    for _ in range(2):
        repositories.allow_root(workspace=first.workspace, path=str(tmp_path), by=actor_of_user(first.admin))
    assert AllowedRoot.objects.count() == 1
    assert AuditEvent.objects.filter(verb=Verb.ROOT_ALLOWED).count() == 1


@pytest.mark.parametrize("path", ["/", "/etc", "/proc/self", "/sys", "/dev"])
def test_a_system_folder_cannot_be_allowed(first, path):
    with pytest.raises(Refused) as caught:
        repositories.allow_root(workspace=first.workspace, path=path, by=actor_of_user(first.admin))
    assert caught.value.code == "root_refused"


def test_the_state_directory_cannot_be_allowed_but_for_the_demo(first):
    admin = actor_of_user(first.admin)
    state = Path(settings.STATE_DIR)
    (state / "demo").mkdir(exist_ok=True)
    for path in (state, state / "sandboxes"):
        with pytest.raises(Refused):
            repositories.allow_root(workspace=first.workspace, path=str(path), by=admin)
    assert repositories.allow_root(workspace=first.workspace, path=str(state / "demo"), by=admin).pk


def test_only_people_of_the_deployment_may_allow_a_root(tmp_path: Path):
    house = make_house("other")
    with pytest.raises(NotVisible):
        repositories.allow_root(workspace=house.workspace, path=str(tmp_path), by=actor_of_user(house.user(Role.ADMIN)))


def test_bootstrap_makes_the_first_rows_once():
    before = bootstrap.ensure_workspace_and_admin()
    assert bootstrap.ensure_workspace_and_admin() == before
    assert (before.membership.role, before.admin.has_usable_password()) == (Role.ADMIN, False)


def test_bootstrap_leaves_what_people_changed():
    first = bootstrap.ensure_workspace_and_admin()
    first.membership.role = Role.VIEWER
    first.membership.save(update_fields=["role"])
    User.objects.filter(pk=first.admin.pk).update(is_superuser=False)
    again = bootstrap.ensure_workspace_and_admin()
    assert (again.membership.role, again.admin.is_superuser) == (Role.VIEWER, False)


def test_a_repository_with_history_cannot_lose_its_workspace(first):
    from django.db.models import ProtectedError

    register(first)
    with pytest.raises(ProtectedError):
        first.workspace.delete()
    assert Repository.objects.count() == 1
