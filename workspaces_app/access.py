"""Decide who may do what. Every route asks here: page, REST, socket, proxy, admin, archive.

A workspace is invisible to those who do not belong to it (NotVisible, 404); what a member's role, a token's scope or a
deployment permission does not cover is Forbidden (403). Being a superuser makes nobody a member.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from django.contrib.auth.models import AnonymousUser

from workspaces_app.errors import Forbidden, NotVisible, Unauthenticated
from workspaces_app.models import ApiToken, Membership, User
from workspaces_app.states import Role, Scope


class Permission(StrEnum):
    VIEW_TASKS = "view_tasks"
    CREATE_TASK = "create_task"
    STEER_TASK = "steer_task"  # cancel, rename, commands
    DELETE_TASK = "delete_task"
    VIEW_FLOWS = "view_flows"
    PUBLISH_FLOW = "publish_flow"
    VIEW_REPOSITORIES = "view_repositories"
    MANAGE_REPOSITORIES = "manage_repositories"
    MANAGE_OWN_TOKENS = "manage_own_tokens"
    MANAGE_MEMBERS = "manage_members"  # and their tokens
    VIEW_AUDIT = "view_audit"
    VIEW_POLICY = "view_policy"
    PUBLISH_POLICY = "publish_policy"
    PUBLISH_REGISTRY = "publish_registry"
    ALLOW_ROOT = "allow_root"
    VIEW_SANDBOXES = "view_sandboxes"
    CONFIRM_DATABASE = "confirm_database"


@dataclass(frozen=True, slots=True)
class Rule:
    """In a workspace: at least ``role``, or being the creator with ``creator_role``."""

    role: Role
    scope: Scope
    creator_role: Role | None = None


IN_WORKSPACE: Mapping[Permission, Rule] = {
    Permission.VIEW_TASKS: Rule(Role.VIEWER, Scope.READ),
    Permission.CREATE_TASK: Rule(Role.OPERATOR, Scope.TASKS),
    Permission.STEER_TASK: Rule(Role.OPERATOR, Scope.TASKS),
    Permission.DELETE_TASK: Rule(Role.MAINTAINER, Scope.TASKS, creator_role=Role.OPERATOR),
    Permission.VIEW_FLOWS: Rule(Role.VIEWER, Scope.READ),
    Permission.PUBLISH_FLOW: Rule(Role.MAINTAINER, Scope.FLOWS),
    Permission.VIEW_REPOSITORIES: Rule(Role.VIEWER, Scope.READ),
    Permission.MANAGE_REPOSITORIES: Rule(Role.ADMIN, Scope.WORKSPACE),
    Permission.MANAGE_OWN_TOKENS: Rule(Role.VIEWER, Scope.WORKSPACE),
    Permission.MANAGE_MEMBERS: Rule(Role.ADMIN, Scope.WORKSPACE),
    Permission.VIEW_AUDIT: Rule(Role.ADMIN, Scope.WORKSPACE),
}

# Of the whole deployment: for staff, and where a Django permission is named, for those who hold it.
OF_DEPLOYMENT: Mapping[Permission, tuple[Scope, str]] = {
    Permission.VIEW_POLICY: (Scope.READ, ""),
    Permission.PUBLISH_POLICY: (Scope.POLICY, "policy_app.publish_policy"),
    Permission.PUBLISH_REGISTRY: (Scope.FLOWS, "registry_app.publish_registry"),
    Permission.ALLOW_ROOT: (Scope.WORKSPACE, "workspaces_app.add_allowedroot"),
    Permission.VIEW_SANDBOXES: (Scope.READ, ""),
    Permission.CONFIRM_DATABASE: (Scope.WORKSPACE, "tasks_app.confirm_database"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who asks. ``scopes`` None means a person in a session: no scope limits them.

    ``networks`` and ``expires_at`` are the other limits of a token; empty and None where there is none.
    """

    label: str
    user_id: int | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)  # workspace id → role
    scopes: frozenset[Scope] | None = None
    is_staff: bool = False
    granted: frozenset[str] = frozenset()  # Django permissions
    networks: tuple[str, ...] = ()
    expires_at: datetime | None = None

    @property
    def workspaces(self) -> tuple[str, ...]:
        """Ids of the workspaces this actor can see: the filter of every list."""
        return tuple(self.roles)


NOBODY = Actor(label="nobody")


def actor_of_user(user: User | AnonymousUser) -> Actor:
    """Describe a signed-in person; somebody anonymous or deactivated is NOBODY."""
    if not isinstance(user, User) or not user.is_active:
        return NOBODY
    memberships = Membership.objects.filter(user=user).values_list("workspace_id", "role")
    return Actor(
        label=f"user:{user.username}",
        user_id=user.pk,
        roles={workspace: Role(role) for workspace, role in memberships},
        is_staff=user.is_staff,
        granted=frozenset(user.get_all_permissions()) if user.is_staff else frozenset(),
    )


def actor_of_token(token: ApiToken) -> Actor:
    """Describe the member behind a token: in that one workspace only, within the token's scopes."""
    membership = token.membership
    user = membership.user
    if not user.is_active:
        return NOBODY
    return Actor(
        label=f"token:{token.key_id}",
        user_id=user.pk,
        roles={membership.workspace_id: Role(membership.role)},
        scopes=frozenset(Scope(scope) for scope in token.scopes if scope in set(Scope)),
        networks=tuple(token.cidrs),
        expires_at=token.expires_at,
        is_staff=user.is_staff,
        granted=frozenset(user.get_all_permissions()) if user.is_staff else frozenset(),
    )


def authorise(
    actor: Actor, permission: Permission, workspace_id: str | None = None, *, creator_id: int | None = None
) -> None:
    """Let ``actor`` pass, or raise Unauthenticated, NotVisible or Forbidden.

    ``workspace_id`` is needed for every permission in a workspace. ``creator_id`` is the user who made the object,
    where the creator may do more than the role says.
    """
    if actor.user_id is None:
        raise Unauthenticated("Sign in first, or send a valid token.")
    if permission in OF_DEPLOYMENT:
        _authorise_deployment(actor, permission)
        return
    rule = IN_WORKSPACE[permission]
    role = actor.roles.get(workspace_id or "")
    if role is None:
        raise NotVisible("There is no such object.")
    _require_scope(actor, rule.scope)
    needed = rule.role
    if rule.creator_role is not None and creator_id is not None and creator_id == actor.user_id:
        needed = rule.creator_role
    if role.rank < needed.rank:
        raise Forbidden(
            f"This needs the role {needed} in the workspace; yours is {role}.",
            code="role_too_low",
            needed=needed,
            role=role,
        )


def allowed(
    actor: Actor, permission: Permission, workspace_id: str | None = None, *, creator_id: int | None = None
) -> bool:
    """Say whether ``authorise`` would let the actor pass: for showing or hiding a control."""
    try:
        authorise(actor, permission, workspace_id, creator_id=creator_id)
    except (Unauthenticated, NotVisible, Forbidden):
        return False
    return True


def _authorise_deployment(actor: Actor, permission: Permission) -> None:
    scope, granted = OF_DEPLOYMENT[permission]
    if not actor.is_staff:
        raise NotVisible("There is no such object.")
    _require_scope(actor, scope)
    if granted and granted not in actor.granted:
        raise Forbidden(f"This needs the permission {granted}.", code="permission_missing", needed=granted)


def _require_scope(actor: Actor, scope: Scope) -> None:
    if actor.scopes is not None and scope not in actor.scopes:
        raise Forbidden(f"The token has not the scope {scope}.", code="scope_missing", needed=scope)
