"""The policy as plain data, for the API and the pages."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

from policy_app.models import PolicyRevision
from policy_app.values import NAMES, PolicyValues, differences
from sandbox_supervisor.protocol.units import show_duration, show_size

SIZES = frozenset(
    {"memory_request", "memory_limit", "ephemeral_storage_limit", "workspace_size", "artefact_quota"}
)  # columns that hold bytes


def revision_data(revision: PolicyRevision) -> dict[str, Any]:
    """Give a revision for an API answer: durations in seconds, sizes in bytes, CPU in cores."""
    return {
        "number": revision.number,
        "parent": revision.parent.number if revision.parent else None,
        "message": revision.message,
        "author": revision.author.username if revision.author else None,
        "published_at": revision.published_at,
        "values": values_data(revision.values),
    }


def values_data(values: PolicyValues) -> dict[str, Any]:
    return {name: _plain(getattr(values, name)) for name in NAMES}


def difference_data(before: PolicyRevision, after: PolicyRevision) -> list[dict[str, Any]]:
    """Give every column that differs, as it is shown to people."""
    return [
        {"name": change.name, "before": shown(change.name, change.before), "after": shown(change.name, change.after)}
        for change in differences(before.values, after.values)
    ]


def shown(name: str, value: object) -> str:
    """Put a column's value as a person would write it."""
    match value:
        case timedelta():
            return show_duration(value)
        case bool():
            return "yes" if value else "no"
        case int() if name in SIZES:
            return show_size(value)
        case Decimal():
            return f"{value.normalize():f}"
        case tuple() | list():
            return ", ".join(map(str, value)) or "–"
        case _:
            return str(value) or "–"


def _plain(value: object) -> object:
    match value:
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return float(value)
        case tuple():
            return list(value)
        case _:
            return value


def holders(revision: PolicyRevision) -> int:
    """Count the rows of other rooms that froze this revision."""
    relations = [
        relation
        for relation in PolicyRevision._meta.related_objects
        if relation.related_model._meta.app_label != PolicyRevision._meta.app_label
    ]
    return sum(
        relation.related_model._default_manager.filter(**{relation.field.name: revision}).count()
        for relation in relations
    )
