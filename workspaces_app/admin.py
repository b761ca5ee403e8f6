"""The admin's view of tenants. Everything with a rule of its own is read-only here and written through services."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.db import models
from django.http import HttpRequest

from workspaces_app.access import actor_of_user
from workspaces_app.models import AllowedRoot, ApiToken, AuditEvent, Membership, Repository, User, Workspace
from workspaces_app.services import audit
from workspaces_app.states import Verb

if TYPE_CHECKING:
    PlainAdmin = admin.ModelAdmin[Any]
else:
    PlainAdmin = admin.ModelAdmin  # generic for the type checker only

admin.site.register(User, UserAdmin)


class ReadOnlyAdmin(PlainAdmin):
    """Shows rows and changes none."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class OfMyWorkspacesAdmin(ReadOnlyAdmin):
    """Shows the rows of the workspaces that the person belongs to; ``workspace_path`` leads to the workspace's id."""

    workspace_path = "workspace_id"

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Any]:
        mine = actor_of_user(request.user).workspaces
        return super().get_queryset(request).filter(**{f"{self.workspace_path}__in": mine})


@admin.register(Workspace)
class WorkspaceAdmin(PlainAdmin):
    list_display = ("slug", "name", "created_at")

    def has_delete_permission(self, request: HttpRequest, obj: Workspace | None = None) -> bool:
        return False


@admin.register(Membership)
class MembershipAdmin(PlainAdmin):
    """Who belongs where; every change leaves a trace."""

    list_display = ("workspace", "user", "role")
    list_filter = ("workspace", "role")
    actions = None

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        _record(request, Verb.MEMBER_CHANGED if change else Verb.MEMBER_ADDED, obj)

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        _record(request, Verb.MEMBER_REMOVED, obj)
        super().delete_model(request, obj)


def _record(request: HttpRequest, verb: Verb, membership: Membership) -> None:
    audit.record(
        actor_of_user(request.user),
        verb,
        kind="user",
        object_id=str(membership.user_id),
        workspace_id=membership.workspace_id,
        after={"username": membership.user.username, "role": membership.role},
    )


@admin.register(Repository)
class RepositoryAdmin(OfMyWorkspacesAdmin):
    list_display = ("slug", "workspace", "clone_url", "push_url", "default_branch")


@admin.register(AllowedRoot)
class AllowedRootAdmin(OfMyWorkspacesAdmin):
    list_display = ("path", "workspace", "created_by", "created_at")


@admin.register(ApiToken)
class ApiTokenAdmin(OfMyWorkspacesAdmin):
    workspace_path = "membership__workspace_id"
    list_display = ("label", "key_id", "membership", "expires_at", "revoked_at", "last_used_at")
    exclude = ("digest", "pepper_id")


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor", "verb", "object_kind", "object_id", "workspace_id")
    list_filter = ("verb",)
