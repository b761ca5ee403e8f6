"""REST: read the runtime policy and its revisions."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response

from policy_app.models import PolicyRevision
from policy_app.services.publish import current_revision
from policy_app.values import differences
from workspaces_app.access import Permission, authorise
from workspaces_app.errors import NotVisible
from workspaces_app.rest.paging import PageQuery, page
from workspaces_app.rest.views import ApiView, Method, answer, declare, not_modified, strong


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord:
    """``values``: durations in seconds, sizes in bytes, cores as text."""

    number: int
    parent: int | None
    message: str
    author: str | None
    published_at: datetime
    current: bool
    values: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPage:
    data: tuple[PolicyRecord, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRecord:
    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDiffRecord:
    before: int | None
    after: int
    differences: tuple[DifferenceRecord, ...]


class Policy(ApiView):
    """The policy that tasks created now freeze."""

    methods = declare(GET=Method(PolicyRecord))

    def get(self, request: Request) -> Response:
        """Read the current revision; its `ETag` is what a publication is based on."""
        authorise(self.actor, Permission.VIEW_POLICY)
        return _revision(request, current_revision())


class PolicyRevisions(ApiView):
    """Every revision of the policy."""

    methods = declare(GET=Method(PolicyPage, query=PageQuery))

    def get(self, request: Request) -> Response:
        """List revisions, newest first."""
        authorise(self.actor, Permission.VIEW_POLICY)
        found = page(PolicyRevision.objects.select_related("author", "parent"), self.asked)
        current = current_revision().number
        data = tuple(_record(row, current) for row in found.rows)
        return answer(PolicyPage(data=data, next_cursor=found.next_cursor))


class OnePolicyRevision(ApiView):
    """One revision of the policy."""

    methods = declare(GET=Method(PolicyRecord))

    def get(self, request: Request, number: int) -> Response:
        """Read a revision."""
        authorise(self.actor, Permission.VIEW_POLICY)
        return _revision(request, _numbered(number))


class PolicyDiff(ApiView):
    """What a revision changed."""

    methods = declare(GET=Method(PolicyDiffRecord))

    def get(self, request: Request, number: int) -> Response:
        """Compare a revision with the one before it."""
        authorise(self.actor, Permission.VIEW_POLICY)
        after = _numbered(number)
        before = after.parent
        found = differences(before.values, after.values) if before else ()
        listed = tuple(
            DifferenceRecord(name=one.name, before=_plain(one.before), after=_plain(one.after)) for one in found
        )
        return answer(
            PolicyDiffRecord(before=before.number if before else None, after=after.number, differences=listed)
        )


def _numbered(number: int) -> PolicyRevision:
    row = PolicyRevision.objects.select_related("author", "parent").filter(number=number).first()
    if row is None:
        raise NotVisible(f"There is no revision {number}.", code="policy_revision_missing")
    return row


def _revision(request: Request, row: PolicyRevision) -> Response:
    record = _record(row, current_revision().number)
    etag = strong(f"{row.number}{'' if record.current else '-past'}")
    if not_modified(request, etag):
        return Response(status=304, headers={"ETag": etag})
    return answer(record, headers={"ETag": etag})


def _record(row: PolicyRevision, current: int) -> PolicyRecord:
    return PolicyRecord(
        number=row.number,
        parent=row.parent.number if row.parent else None,
        message=row.message,
        author=row.author.get_username() if row.author else None,
        published_at=row.published_at,
        current=row.number == current,
        values={name: _plain(value) for name, value in asdict(row.values).items()},
    )


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


urlpatterns = [
    path("policy", Policy.as_view(), name="api-policy"),
    path("policy/revisions", PolicyRevisions.as_view(), name="api-policy-revisions"),
    path("policy/revisions/<int:number>", OnePolicyRevision.as_view(), name="api-policy-revision"),
    path("policy/revisions/<int:number>/diff", PolicyDiff.as_view(), name="api-policy-diff"),
]
