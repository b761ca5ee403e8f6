"""REST: flows and their versions; try a flow file out, publish it."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any

from django.urls import path
from msgspec import Meta
from rest_framework.request import Request
from rest_framework.response import Response

from registry_app.flows.compiler import worst_case_of
from registry_app.models import FlowVersion
from registry_app.services import flows
from sandbox_supervisor.protocol.flow import Flow
from workspaces_app.access import Permission, allowed, authorise
from workspaces_app.errors import NotVisible, PreconditionFailed, PreconditionMissing
from workspaces_app.models import Workspace
from workspaces_app.rest.choosing import workspace_for
from workspaces_app.rest.paging import PageQuery, page
from workspaces_app.rest.views import ApiView, Method, answer, declare, not_modified, strong

SOURCE_LIMIT = 1024 * 1024  # characters; the compiler has its own, lower limit and says so

Slug = Annotated[str, Meta(max_length=63, description="Slug; may be left out by a member of one.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowQuery(PageQuery):
    workspace: Slug = ""
    name: Annotated[str, Meta(max_length=63)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowVersionRecord:
    """``workspace`` null: a flow of the whole deployment."""

    id: str
    name: str
    workspace: str | None
    number: int
    digest: str
    description: str
    inputs: dict[str, Any]
    nodes: int
    created_at: datetime
    created_by: str | None
    yanked_at: datetime | None
    yanked_because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowVersionDetail(FlowVersionRecord):
    source: str
    compiled: Flow
    worst_case: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowVersionPage:
    data: tuple[FlowVersionRecord, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSource:
    """The text of a flow file, and the workspace it is meant for."""

    source: Annotated[str, Meta(max_length=SOURCE_LIMIT)]
    workspace: Slug = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFlow(FlowSource):
    """``deployment``: publish for every workspace, which is a permission of its own."""

    deployment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFlowRecord:
    name: str
    digest: str
    compiled: Flow
    worst_case: dict[str, Any]
    references: tuple[dict[str, Any], ...]


class Flows(ApiView):
    """The flows that a workspace can use."""

    methods = declare(
        GET=Method(FlowVersionPage, query=FlowQuery),
        POST=Method(
            FlowVersionRecord,
            status=201,
            body=NewFlow,
            headers=("If-Match",),
        ),
    )

    def get(self, request: Request) -> Response:
        """List versions, newest first: the deployment's and the workspace's own."""
        workspace = workspace_for(self.actor, self.asked.workspace, in_query=True)
        authorise(self.actor, Permission.VIEW_FLOWS, workspace.pk)
        rows = FlowVersion.objects.visible_to([workspace.pk])
        if self.asked.name:
            rows = rows.filter(flow__name=self.asked.name)
        found = page(rows.select_related("flow__workspace", "created_by"), self.asked)
        data = tuple(FlowVersionRecord(**_members(row)) for row in found.rows)
        return answer(FlowVersionPage(data=data, next_cursor=found.next_cursor))

    def post(self, request: Request) -> Response:
        """Publish a flow file as the next version of the flow that it names.

        A changed flow needs `If-Match` with the `ETag` of the newest version (`*`: whatever it is); else 428, or 412
        when it has moved. A file that compiles to the newest version's digest gives that version.
        """
        asked = self.read(NewFlow)
        workspace = None if asked.deployment else workspace_for(self.actor, asked.workspace)
        permission = Permission.PUBLISH_REGISTRY if workspace is None else Permission.PUBLISH_FLOW
        authorise(self.actor, permission, workspace.pk if workspace else None)
        based_on = _based_on(request, asked.source, workspace)
        made = flows.publish_flow(asked.source, workspace=workspace, by=self.actor, based_on=based_on)
        return answer(FlowVersionRecord(**_members(made)), status=201, headers={"ETag": _tag(made)})


def _based_on(request: Request, source: str, workspace: Workspace | None) -> int | None:
    """Give the number that the author saw. Raises PreconditionMissing for a flow that exists and was not named."""
    compiled = flows.compiled_or_refused(source)
    newest = flows.newest_version(compiled.flow.name, workspace)
    if newest is None or newest.digest == compiled.digest:
        return newest.number if newest else None
    given = request.headers.get("If-Match", "").strip()
    if given == "*":
        return newest.number
    if not given:
        raise PreconditionMissing(
            f"The flow {compiled.flow.name!r} exists; send If-Match with the ETag of the version you changed.",
            code="if_match_missing",
            current=newest.number,
        )
    if given != _tag(newest):
        raise PreconditionFailed(f"Version {newest.number} is the newest.", code="flow_moved", current=newest.number)
    return newest.number


class FlowTrial(ApiView):
    """What a flow file compiles to."""

    methods = declare(POST=Method(CompiledFlowRecord, body=FlowSource, rate="create"))

    def post(self, request: Request) -> Response:
        """Compile a flow file; every problem at once, with line, column and hint (422)."""
        asked = self.read(FlowSource)
        authorise(self.actor, Permission.PUBLISH_FLOW, workspace_for(self.actor, asked.workspace).pk)
        compiled = flows.compiled_or_refused(asked.source)
        record = CompiledFlowRecord(
            name=compiled.flow.name,
            digest=compiled.digest,
            compiled=compiled.flow,
            worst_case=asdict(compiled.worst_case),
            references=tuple(asdict(reference) for reference in compiled.references),
        )
        return answer(record)


class OneFlowVersion(ApiView):
    """One version of a flow."""

    methods = declare(GET=Method(FlowVersionDetail))

    def get(self, request: Request, version_id: str) -> Response:
        """Read a version with its file and what it compiled to."""
        rows = FlowVersion.objects.select_related("flow__workspace", "created_by")
        row = rows.visible_to(self.actor.workspaces).filter(pk=version_id).first()
        if row is None or not _may_view(self, row):
            raise NotVisible("There is no such flow.", code="flow_unknown")
        etag = _tag(row)
        if not_modified(request, etag):
            return Response(status=304, headers={"ETag": etag})
        flow = row.compiled
        detail = FlowVersionDetail(
            **_members(row), source=row.source, compiled=flow, worst_case=asdict(worst_case_of(flow))
        )
        return answer(detail, headers={"ETag": etag})


def _may_view(view: ApiView, row: FlowVersion) -> bool:
    workspaces = (row.flow.workspace_id,) if row.flow.workspace_id else view.actor.workspaces
    return any(allowed(view.actor, Permission.VIEW_FLOWS, workspace) for workspace in workspaces)


def _tag(row: FlowVersion) -> str:
    return strong(f"{row.number}-{row.digest.removeprefix('sha256:')[:16]}")


def _members(row: FlowVersion) -> dict[str, Any]:
    flow = row.compiled
    return {
        "id": row.pk,
        "name": row.flow.name,
        "workspace": row.flow.workspace.slug if row.flow.workspace else None,
        "number": row.number,
        "digest": row.digest,
        "description": flow.description,
        "inputs": flow.inputs,
        "nodes": len(flow.all_nodes()),
        "created_at": row.created_at,
        "created_by": row.created_by.get_username() if row.created_by else None,
        "yanked_at": row.yanked_at,
        "yanked_because": row.yanked_because,
    }


urlpatterns = [
    path("flows", Flows.as_view(), name="api-flows"),
    path("flows:compile", FlowTrial.as_view(), name="api-flows-compile"),
    path("flows/versions/<str:version_id>", OneFlowVersion.as_view(), name="api-flow-version"),
]
