"""The Django application of the task record."""

from importlib import import_module

from django.apps import AppConfig


class TasksConfig(AppConfig):
    name = "tasks_app"
    verbose_name = "Tasks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the jobs, and with them the Celery application that ``queue`` sends through."""
        import_module("tasks_app.jobs")
