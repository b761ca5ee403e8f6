"""Name the app to Django."""

from django.apps import AppConfig


class WorkspacesConfig(AppConfig):
    name = "workspaces_app"
    verbose_name = "Workspaces"
    default_auto_field = "django.db.models.BigAutoField"
