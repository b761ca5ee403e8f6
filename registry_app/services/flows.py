"""Publish and withdraw flows."""

from datetime import datetime

from django.db import IntegrityError, transaction

from registry_app.errors import FlowInvalid
from registry_app.flows.compiler import CompiledFlow, compile_flow
from registry_app.models import Flow, FlowVersion
from workspaces_app.access import Actor, Permission, authorise
from workspaces_app.errors import Conflict
from workspaces_app.models import Workspace
from workspaces_app.services import audit
from workspaces_app.states import Verb


def publish_flow(source: str, *, workspace: Workspace | None, by: Actor, based_on: int | None) -> FlowVersion:
    """Publish the text of a flow file as the next version of the flow that it names.

    ``workspace`` None publishes for the whole deployment. ``based_on`` is the number of the newest version that the
    author saw, None for a flow that is new: when it is no longer the newest, nothing is written and Conflict is raised.
    What compiles to the digest of the newest version gives that version. Raises FlowInvalid with all problems.
    """
    _authorise(by, workspace)
    compiled = compiled_or_refused(source)
    newest = newest_version(compiled.flow.name, workspace)
    if newest is not None and newest.digest == compiled.digest and newest.yanked_at is None:
        return newest
    if (newest.number if newest else None) != based_on:
        raise _moved(compiled.flow.name, newest, based_on)
    try:
        return store_flow(source, compiled, number=(based_on or 0) + 1, workspace=workspace, by=by)
    except IntegrityError:  # another publication took the number in between
        raise _moved(compiled.flow.name, newest_version(compiled.flow.name, workspace), based_on) from None


def compiled_or_refused(source: str | bytes) -> CompiledFlow:
    """Compile, or raise FlowInvalid with every problem."""
    outcome = compile_flow(source)
    if isinstance(outcome, list):
        raise FlowInvalid(outcome)
    return outcome


def newest_version(name: str, workspace: Workspace | None) -> FlowVersion | None:
    """Give the newest version of a flow, withdrawn or not."""
    return FlowVersion.objects.filter(flow__name=name, flow__workspace=workspace).order_by("-number").first()


def store_flow(
    source: str, compiled: CompiledFlow, *, number: int, workspace: Workspace | None, by: Actor
) -> FlowVersion:
    """Write version ``number``. The caller has checked who asks; raises IntegrityError when the number is taken."""
    with transaction.atomic():
        flow, _ = Flow.objects.get_or_create(name=compiled.flow.name, workspace=workspace)
        version = FlowVersion.objects.create(
            flow=flow,
            number=number,
            source=source,
            canonical=compiled.canonical.decode(),
            digest=compiled.digest,
            created_by_id=by.user_id,
        )
        audit.record(
            by,
            Verb.FLOW_PUBLISHED,
            kind="flow_version",
            object_id=version.pk,
            workspace_id=workspace.pk if workspace else "",
            after={"flow": flow.name, "number": version.number, "digest": version.digest},
        )
    return version


def yank_flow(version: FlowVersion, *, because: str, by: Actor, now: datetime) -> None:
    """Hide a version from new tasks; tasks that froze it keep it. A second call changes nothing."""
    workspace = version.flow.workspace
    _authorise(by, workspace)
    with transaction.atomic():
        changed = FlowVersion.objects.filter(pk=version.pk, yanked_at__isnull=True).update(
            yanked_at=now, yanked_because=because
        )
        if changed:
            audit.record(
                by,
                Verb.FLOW_YANKED,
                kind="flow_version",
                object_id=version.pk,
                workspace_id=workspace.pk if workspace else "",
                after={"because": because},
            )


def _authorise(by: Actor, workspace: Workspace | None) -> None:
    if workspace is None:
        authorise(by, Permission.PUBLISH_REGISTRY)
    else:
        authorise(by, Permission.PUBLISH_FLOW, workspace.pk)


def _moved(name: str, newest: FlowVersion | None, based_on: int | None) -> Conflict:
    there = f"version {newest.number} is the newest" if newest else "there is no version yet"
    return Conflict(
        f"The flow {name!r} has moved: {there}, you worked from {based_on if based_on is not None else 'none'}.",
        code="flow_moved",
        based_on=based_on,
        current=newest.number if newest else None,
    )
