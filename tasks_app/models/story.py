"""What happened to a task, and which credentials it was given."""

from django.db import models
from django.db.models import Q

from tasks_app.models.task import Task
from tasks_app.querysets import TaskEventQuerySet


class TaskEvent(models.Model):
    """One fact of a task's history, written with the fact itself; also the outbox until ``published_at`` is set."""

    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=64)
    actor = models.CharField(max_length=200, help_text="user:<name>, token:<key id>, system:<part> or supervisor")
    rev = models.BigIntegerField(help_text="Of the task row that this fact made.")
    data = models.JSONField(default=dict, blank=True)
    key = models.CharField(max_length=100, blank=True, help_text="Not empty: a fact that is told once.")
    published_at = models.DateTimeField(null=True, blank=True)

    objects = TaskEventQuerySet.as_manager()

    class Meta:
        ordering = ("id",)
        indexes = (
            models.Index(fields=("task", "id"), name="event_by_task"),
            models.Index(fields=("id",), condition=Q(published_at__isnull=True), name="event_outbox"),
        )
        constraints = (
            models.UniqueConstraint(fields=("task", "key"), condition=~Q(key=""), name="event_with_a_key_is_told_once"),
        )

    def __str__(self) -> str:
        return f"{self.kind} of {self.task_id}"


class TaskCredential(models.Model):
    """Which stored credential a task was given: ids only, the ground for revocation."""

    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="credentials")
    kind = models.CharField(max_length=32)
    credential = models.CharField(max_length=64)
    version = models.CharField(max_length=64, blank=True)
    recipient = models.CharField(max_length=32)
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("task", "kind", "credential", "recipient"), name="one_row_per_task_credential_and_recipient"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} of {self.task_id}"
