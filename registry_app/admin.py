"""The registry in the Django admin, read-only: versions are published by services and never change."""

from typing import Any

from django.contrib import admin
from django.db import models
from django.db.models import Q
from django.http import HttpRequest

from registry_app.models import Driver, DriverVersion, Flow, FlowVersion
from workspaces_app.access import actor_of_user
from workspaces_app.admin import ReadOnlyAdmin


@admin.register(Driver)
class DriverAdmin(ReadOnlyAdmin):
    list_display = ("name", "description")


@admin.register(DriverVersion)
class DriverVersionAdmin(ReadOnlyAdmin):
    list_display = ("driver", "number", "digest", "created_at", "yanked_at")


class VisibleFlowsAdmin(ReadOnlyAdmin):
    """Shows the deployment's flows and those of the person's workspaces."""

    workspace_path = "workspace"

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Any]:
        mine = actor_of_user(request.user).workspaces
        path = self.workspace_path
        return super().get_queryset(request).filter(Q(**{f"{path}__isnull": True}) | Q(**{f"{path}__in": mine}))


@admin.register(Flow)
class FlowAdmin(VisibleFlowsAdmin):
    list_display = ("name", "workspace")


@admin.register(FlowVersion)
class FlowVersionAdmin(VisibleFlowsAdmin):
    workspace_path = "flow__workspace"
    list_display = ("flow", "number", "digest", "created_by", "created_at", "yanked_at")
