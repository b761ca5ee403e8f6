"""Count the sandboxes that are held, per workspace and for the deployment, under the lock of the counters' rows."""

from django.db.models import F

from tasks_app.errors import QuotaReached
from tasks_app.models import Quota

DEPLOYMENT = "deployment"


def workspace_scope(workspace_id: str) -> str:
    return f"workspace:{workspace_id}"


def hold(workspace_id: str, *, limit: int) -> None:
    """Count one more in both scopes, in the caller's transaction. Raises QuotaReached when ``limit`` are held."""
    for scope in (DEPLOYMENT, workspace_scope(workspace_id)):
        Quota.objects.get_or_create(scope=scope)
        if not Quota.objects.filter(scope=scope, used__lt=limit).update(used=F("used") + 1):
            raise QuotaReached(
                f"The policy allows {limit} sandboxes at one time, and all are in use. Delete an ended task, or wait.",
                limit=limit,
                scope=scope,
            )


def release(workspace_id: str) -> None:
    """Count one less in both scopes, in the transaction that ends the task's hold."""
    scopes = (DEPLOYMENT, workspace_scope(workspace_id))
    Quota.objects.filter(scope__in=scopes, used__gt=0).update(used=F("used") - 1)
