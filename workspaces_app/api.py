"""REST: who you are, repositories, API tokens."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.urls import path
from django.utils import timezone
from msgspec import Meta
from rest_framework.request import Request
from rest_framework.response import Response

from workspaces_app.access import Permission, authorise
from workspaces_app.errors import NotVisible, Unauthenticated
from workspaces_app.models import ApiToken, Membership, Repository, User, Workspace
from workspaces_app.rest.choosing import workspace_for
from workspaces_app.rest.paging import PageQuery, page
from workspaces_app.rest.views import ApiView, Method, answer, declare
from workspaces_app.services import repositories, tokens
from workspaces_app.states import Role, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRecord:
    workspace: str
    name: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class MeRecord:
    """``scopes`` null: a session, which no scope limits."""

    username: str
    is_staff: bool
    memberships: tuple[MembershipRecord, ...]
    scopes: tuple[Scope, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceQuery(PageQuery):
    workspace: Annotated[str, Meta(max_length=63, description="Slug; may be left out by a member of one.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryRecord:
    id: str
    workspace: str
    slug: str
    forge: str
    clone_url: str
    push_url: Annotated[str, Meta(description="Where deliveries go.")]
    default_branch: Annotated[str, Meta(description="Empty: what the remote's HEAD names.")]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryPage:
    data: tuple[RepositoryRecord, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRepository:
    slug: Annotated[str, Meta(min_length=1, max_length=63)]
    clone_url: Annotated[str, Meta(min_length=1, max_length=2000)]
    push_url: Annotated[str, Meta(max_length=2000)] = ""
    default_branch: Annotated[str, Meta(max_length=200)] = ""
    workspace: Annotated[str, Meta(max_length=63)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """What is known of a token; its text was shown once."""

    id: str
    workspace: str
    label: str
    scopes: tuple[str, ...]
    cidrs: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTokenRecord(TokenRecord):
    token: Annotated[str, Meta(description="Shown this once.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPage:
    data: tuple[TokenRecord, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    label: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=len(Scope))]
    days: Annotated[int, Meta(ge=1, le=366)] = 90
    cidrs: Annotated[tuple[Annotated[str, Meta(max_length=50)], ...], Meta(max_length=20)] = ()
    workspace: Annotated[str, Meta(max_length=63)] = ""


class Me(ApiView):
    """You."""

    methods = declare(GET=Method(MeRecord))

    def get(self, request: Request) -> Response:
        """Say who asks, in which workspaces, with which roles and scopes."""
        user = request.user
        if not isinstance(user, User):
            raise Unauthenticated("Sign in first, or send a token.")
        memberships = Membership.objects.filter(user=user, workspace_id__in=self.actor.workspaces)
        scopes = self.actor.scopes
        record = MeRecord(
            username=user.get_username(),
            is_staff=user.is_staff,
            memberships=tuple(
                MembershipRecord(workspace=one.workspace.slug, name=one.workspace.name, role=Role(one.role))
                for one in memberships.select_related("workspace")
            ),
            scopes=None if scopes is None else tuple(sorted(scopes)),
        )
        return answer(record)


class Repositories(ApiView):
    """The repositories of a workspace."""

    methods = declare(
        GET=Method(RepositoryPage, query=WorkspaceQuery),
        POST=Method(RepositoryRecord, status=201, body=NewRepository),
    )

    def get(self, request: Request) -> Response:
        """List repositories, newest first."""
        workspace = workspace_for(self.actor, self.asked.workspace, in_query=True)
        authorise(self.actor, Permission.VIEW_REPOSITORIES, workspace.pk)
        found = page(Repository.objects.filter(workspace=workspace).select_related("workspace"), self.asked)
        data = tuple(_repository(row) for row in found.rows)
        return answer(RepositoryPage(data=data, next_cursor=found.next_cursor))

    def post(self, request: Request) -> Response:
        """Register a repository. The same slug with the same addresses gives the one that is there."""
        asked = self.read(NewRepository)
        made = repositories.register(
            workspace=workspace_for(self.actor, asked.workspace),
            slug=asked.slug,
            clone_url=asked.clone_url,
            push_url=asked.push_url,
            default_branch=asked.default_branch,
            by=self.actor,
        )
        return answer(_repository(made), status=201)


class OneRepository(ApiView):
    """One repository."""

    methods = declare(GET=Method(RepositoryRecord))

    def get(self, request: Request, repository_id: str) -> Response:
        """Read a repository by its id."""
        rows = Repository.objects.filter(workspace_id__in=self.actor.workspaces).select_related("workspace")
        row = rows.filter(pk=repository_id).first()
        if row is None:
            raise NotVisible("There is no such repository.", code="repository_unknown")
        authorise(self.actor, Permission.VIEW_REPOSITORIES, row.workspace_id)
        return answer(_repository(row))


def _repository(row: Repository) -> RepositoryRecord:
    return RepositoryRecord(
        id=row.pk,
        workspace=row.workspace.slug,
        slug=row.slug,
        forge=row.forge,
        clone_url=row.clone_url,
        push_url=row.remote,
        default_branch=row.default_branch,
        created_at=row.created_at,
    )


class Tokens(ApiView):
    """Your API tokens."""

    methods = declare(
        GET=Method(TokenPage, query=WorkspaceQuery), POST=Method(NewTokenRecord, status=201, body=NewToken)
    )

    def get(self, request: Request) -> Response:
        """List your own tokens of a workspace, by id."""
        membership = self._membership(workspace_for(self.actor, self.asked.workspace, in_query=True))
        rows = ApiToken.objects.filter(membership=membership).select_related("membership__workspace")
        found = page(rows, self.asked, newest_first=False)
        data = tuple(TokenRecord(**_token(row)) for row in found.rows)
        return answer(TokenPage(data=data, next_cursor=found.next_cursor))

    def post(self, request: Request) -> Response:
        """Make a token of your own. Its text is in this answer and nowhere else.

        A token can make only tokens with scopes that it has itself, for networks that it is bound to; they end with it
        at the latest.
        """
        asked = self.read(NewToken)
        membership = self._membership(workspace_for(self.actor, asked.workspace))
        made = tokens.create(
            membership=membership,
            label=asked.label,
            scopes=asked.scopes,
            by=self.actor,
            now=timezone.now(),
            life=timedelta(days=asked.days),
            cidrs=asked.cidrs,
        )
        return answer(NewTokenRecord(**_token(made.token), token=made.text), status=201)

    def _membership(self, workspace: Workspace) -> Membership:
        authorise(self.actor, Permission.MANAGE_OWN_TOKENS, workspace.pk)
        return Membership.objects.select_related("workspace").get(workspace=workspace, user_id=self.actor.user_id or 0)


class OneToken(ApiView):
    """One API token."""

    methods = declare(DELETE=Method(None, status=204))

    def delete(self, request: Request, key_id: str) -> Response:
        """Revoke a token: your own, or as an admin of its workspace anybody's. Repeating is safe."""
        rows = ApiToken.objects.filter(membership__workspace_id__in=self.actor.workspaces)
        row = rows.select_related("membership").filter(pk=key_id).first()
        if row is None:
            raise NotVisible("There is no such token.", code="token_unknown")
        tokens.revoke(row, by=self.actor, now=timezone.now())
        return Response(status=204)


def _token(row: ApiToken) -> dict[str, Any]:
    return {
        "id": row.key_id,
        "workspace": row.membership.workspace.slug,
        "label": row.label,
        "scopes": tuple(row.scopes),
        "cidrs": tuple(row.cidrs),
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "last_used_at": row.last_used_at,
    }


urlpatterns = [
    path("me", Me.as_view(), name="api-me"),
    path("repositories", Repositories.as_view(), name="api-repositories"),
    path("repositories/<str:repository_id>", OneRepository.as_view(), name="api-repository"),
    path("tokens", Tokens.as_view(), name="api-tokens"),
    path("tokens/<str:key_id>", OneToken.as_view(), name="api-token"),
]
