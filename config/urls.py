"""Every route of the control plane. Each room brings its own table."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("internal/v1/", include("tasks_app.internal.urls")),
    path("api/v1/", include("workspaces_app.api")),
    path("api/v1/", include("policy_app.api")),
    path("api/v1/", include("registry_app.api")),
    path("api/v1/", include("tasks_app.api.urls")),
    path("", include("tasks_app.api.health")),
    path("", include("workspaces_app.web")),
    path("", include("tasks_app.web.urls")),
]
