"""Name the app to Django."""

from django.apps import AppConfig


class PolicyConfig(AppConfig):
    name = "policy_app"
    verbose_name = "Runtime policy"
    default_auto_field = "django.db.models.BigAutoField"
