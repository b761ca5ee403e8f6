"""The admin's view of tenants. Everything with a rule of its own is read-only here and written through services."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.admin import UserAdmin
from django.core.exceptions import ValidationError
from django.db import models
from django.http import HttpRequest

from workspaces_app.access import Permission, actor_of_user, allowed
from workspaces_app.models import AllowedRoot, ApiToken, AuditEvent, Membership, Repository, User, Workspace
from workspaces_app.rest import throttles
from workspaces_app.services import audit, repositories
from workspaces_app.states import Verb

if TYPE_CHECKING:
    PlainAdmin = admin.ModelAdmin[Any]
    DjangoUserAdmin = UserAdmin[Any]
else:  # generic for the type checker only
    PlainAdmin = admin.ModelAdmin
    DjangoUserAdmin = UserAdmin

OF_THE_DEPLOYMENT = ""  # the workspace of events that belong to none


class PatientSignIn(AdminAuthenticationForm):
    """The form for a password, which an address may try only so often. By name would let anybody shut anybody out."""

    def clean(self) -> dict[str, Any]:
        address = str(self.request.META.get("REMOTE_ADDR", "")) if self.request else ""
        standing = throttles.count("password", address)
        if standing.exceeded:
            raise ValidationError(f"Too many tries. Try again in {standing.reset} s.", code="throttled")
        return super().clean()


admin.site.login_form = PatientSignIn


@admin.register(User)
class PersonAdmin(DjangoUserAdmin):
    """Django's own page of a person, who is deactivated and never removed."""

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return False


class ReadOnlyAdmin(PlainAdmin):
    """Shows rows and changes none."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class OfMyWorkspacesAdmin(ReadOnlyAdmin):
    """Shows the rows of the workspaces in which the person has ``permission``, beside what Django's own ask for.

    ``workspace_path`` leads to the workspace's id.
    """

    permission = Permission.VIEW_REPOSITORIES
    workspace_path = "workspace_id"

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Any]:
        return super().get_queryset(request).filter(**{f"{self.workspace_path}__in": self._mine(request)})

    def _mine(self, request: HttpRequest) -> list[str]:
        actor = actor_of_user(request.user)
        return [workspace for workspace in actor.workspaces if allowed(actor, self.permission, workspace)]


@admin.register(Workspace)
class WorkspaceAdmin(PlainAdmin):
    list_display = ("slug", "name", "created_at")

    def save_model(self, request: HttpRequest, obj: Workspace, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change:
            audit.record(
                actor_of_user(request.user),
                Verb.WORKSPACE_CREATED,
                kind="workspace",
                object_id=obj.pk,
                workspace_id=obj.pk,
            )

    def has_delete_permission(self, request: HttpRequest, obj: Workspace | None = None) -> bool:
        return False


@admin.register(Membership)
class MembershipAdmin(PlainAdmin):
    """Who belongs where; every change leaves a trace.

    Only the role of a membership changes: its tokens would else begin to act as somebody else, or elsewhere.
    """

    list_display = ("workspace", "user", "role")
    list_filter = ("workspace", "role")
    actions = None

    def get_readonly_fields(self, request: HttpRequest, obj: Membership | None = None) -> tuple[str, ...]:
        return () if obj is None else ("workspace", "user")

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        before = form.initial.get("role") if change else None
        _record(request, Verb.MEMBER_CHANGED if change else Verb.MEMBER_ADDED, obj, before=before, after=obj.role)

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        _record(request, Verb.MEMBER_REMOVED, obj, before=obj.role, after=None)
        super().delete_model(request, obj)


def _record(request: HttpRequest, verb: Verb, membership: Membership, *, before: str | None, after: str | None) -> None:
    who = {"username": membership.user.username}
    audit.record(
        actor_of_user(request.user),
        verb,
        kind="user",
        object_id=str(membership.user_id),
        workspace_id=membership.workspace_id,
        before={**who, "role": before} if before else None,
        after={**who, "role": after} if after else None,
    )


@admin.register(Repository)
class RepositoryAdmin(OfMyWorkspacesAdmin):
    list_display = ("slug", "workspace", "clone_url", "push_url", "default_branch")


@admin.register(AllowedRoot)
class AllowedRootAdmin(OfMyWorkspacesAdmin):
    """Roots are added by ``./caisson run PATH``; here they are taken back."""

    list_display = ("path", "workspace", "created_by", "created_at")
    actions = None

    def has_delete_permission(self, request: HttpRequest, obj: AllowedRoot | None = None) -> bool:
        return allowed(actor_of_user(request.user), Permission.ALLOW_ROOT)

    def delete_model(self, request: HttpRequest, obj: AllowedRoot) -> None:
        repositories.forbid_root(obj, by=actor_of_user(request.user))


@admin.register(ApiToken)
class ApiTokenAdmin(OfMyWorkspacesAdmin):
    permission = Permission.MANAGE_MEMBERS
    workspace_path = "membership__workspace_id"
    list_display = ("label", "key_id", "membership", "expires_at", "revoked_at", "last_used_at")
    exclude = ("digest", "pepper_id")


@admin.register(AuditEvent)
class AuditEventAdmin(OfMyWorkspacesAdmin):
    """The trail of the deployment, and of the workspaces that the person administers."""

    permission = Permission.VIEW_AUDIT
    list_display = ("at", "actor", "verb", "object_kind", "object_id", "workspace_id")
    list_filter = ("verb",)

    def _mine(self, request: HttpRequest) -> list[str]:
        return [*super()._mine(request), OF_THE_DEPLOYMENT]
