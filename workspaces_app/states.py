"""The closed vocabularies of this app."""

from enum import StrEnum


class Role(StrEnum):
    """What a member may do; each role may do all that the ones before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    MAINTAINER = "maintainer"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return list(Role).index(self)


class Scope(StrEnum):
    """What a token may be used for; its member's role is the other limit."""

    READ = "read"
    TASKS = "tasks"  # create, steer, delete
    FLOWS = "flows"
    POLICY = "policy"
    WORKSPACE = "workspace"  # repositories, members, tokens


class Forge(StrEnum):
    GIT = "git"


class Verb(StrEnum):
    """What audit events say was done."""

    WORKSPACE_CREATED = "workspace.created"
    MEMBER_ADDED = "member.added"
    MEMBER_CHANGED = "member.changed"
    MEMBER_REMOVED = "member.removed"
    REPOSITORY_REGISTERED = "repository.registered"
    ROOT_ALLOWED = "allowed_root.added"
    ROOT_FORBIDDEN = "allowed_root.removed"
    TOKEN_CREATED = "token.created"  # noqa: S105 - a verb
    TOKEN_REVOKED = "token.revoked"  # noqa: S105 - a verb
    SIGN_IN_LINK_CREATED = "sign_in_link.created"
    SIGNED_IN = "signed_in"
    POLICY_PUBLISHED = "policy.published"
    FLOW_PUBLISHED = "flow.published"
    FLOW_YANKED = "flow.yanked"
    DRIVER_PUBLISHED = "driver.published"
    TASK_DELETED = "task.deleted"
    DATABASE_CONFIRMED = "database.confirmed"
