"""Append to the audit trail."""

from collections.abc import Mapping
from typing import Any

from workspaces_app.access import Actor
from workspaces_app.models import AuditEvent
from workspaces_app.states import Verb

SYSTEM = Actor(label="system:caisson")


def record(
    actor: Actor,
    verb: Verb,
    *,
    kind: str,
    object_id: str,
    workspace_id: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    request_id: str = "",
) -> AuditEvent:
    """Write one event in the caller's transaction. The caller leaves secrets out of ``before`` and ``after``."""
    return AuditEvent.objects.create(
        actor=actor.label,
        verb=verb,
        object_kind=kind,
        object_id=object_id,
        workspace_id=workspace_id,
        request_id=request_id,
        before=before,
        after=after,
    )
