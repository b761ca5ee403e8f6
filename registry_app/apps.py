"""Name the app to Django."""

from django.apps import AppConfig


class RegistryConfig(AppConfig):
    name = "registry_app"
    verbose_name = "Registry"
    default_auto_field = "django.db.models.BigAutoField"
