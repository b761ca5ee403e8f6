"""Every route of the control plane. Each room brings its own table."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("internal/v1/", include("tasks_app.internal.urls")),
    path("", include("workspaces_app.web")),
    path("", include("tasks_app.web.urls")),
]
