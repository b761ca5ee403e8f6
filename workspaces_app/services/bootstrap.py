"""The first workspace and the first admin."""

from dataclasses import dataclass

from django.db import transaction

from workspaces_app.models import Membership, User, Workspace
from workspaces_app.services import audit
from workspaces_app.states import Role, Verb

FIRST_WORKSPACE = "main"
FIRST_ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class FirstRows:
    workspace: Workspace
    admin: User
    membership: Membership


def ensure_workspace_and_admin(*, username: str = FIRST_ADMIN) -> FirstRows:
    """Make the first workspace and an admin without a password; whatever is there stays as it is.

    The admin signs in by a link (``sign_in_links``). Safe to repeat and to race.
    """
    with transaction.atomic():
        workspace, new_workspace = Workspace.objects.get_or_create(slug=FIRST_WORKSPACE, defaults={"name": "Main"})
        admin, new_admin = User.objects.get_or_create(
            username=username, defaults={"is_staff": True, "is_superuser": True, "password": ""}
        )
        if new_admin:
            admin.set_unusable_password()
            admin.save(update_fields=["password"])
        membership, _ = Membership.objects.get_or_create(workspace=workspace, user=admin, defaults={"role": Role.ADMIN})
        _record(workspace if new_workspace else None, admin if new_admin else None)
    return FirstRows(workspace, admin, membership)


def _record(workspace: Workspace | None, admin: User | None) -> None:
    if workspace is not None:
        audit.record(
            audit.SYSTEM, Verb.WORKSPACE_CREATED, kind="workspace", object_id=workspace.pk, workspace_id=workspace.pk
        )
    if admin is not None:
        audit.record(audit.SYSTEM, Verb.MEMBER_ADDED, kind="user", object_id=str(admin.pk), after={"role": Role.ADMIN})
