"""The policy as people read it."""

from datetime import timedelta
from decimal import Decimal

from policy_app.models import PolicyRevision
from policy_app.values import PolicyValues, differences
from sandbox_supervisor.protocol.units import show_duration, show_size

SIZES = frozenset(
    {"memory_request", "memory_limit", "ephemeral_storage_limit", "workspace_size", "artefact_quota"}
)  # columns that hold bytes


def shown_differences(before: PolicyValues, after: PolicyValues) -> list[dict[str, str]]:
    """Give every column that differs, as it is shown to people."""
    return [
        {"name": change.name, "before": shown(change.name, change.before), "after": shown(change.name, change.after)}
        for change in differences(before, after)
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
