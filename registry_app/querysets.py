"""Questions about many rows."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q

if TYPE_CHECKING:
    from registry_app.models import DriverVersion, FlowVersion  # noqa: F401


class DriverVersionQuerySet(models.QuerySet["DriverVersion"]):
    def usable(self) -> "DriverVersionQuerySet":
        """Versions that new tasks may use."""
        return self.filter(yanked_at__isnull=True)


class FlowVersionQuerySet(models.QuerySet["FlowVersion"]):
    def usable(self) -> "FlowVersionQuerySet":
        """Versions that new tasks may use."""
        return self.filter(yanked_at__isnull=True)

    def visible_to(self, workspaces: Collection[str]) -> "FlowVersionQuerySet":
        """Versions of the deployment's flows and of those of these workspaces."""
        return self.filter(Q(flow__workspace__isnull=True) | Q(flow__workspace_id__in=workspaces))
