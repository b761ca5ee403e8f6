"""Leases, idempotency keys, the quota counters, and how far the deployment has come."""

from enum import StrEnum

from django.conf import settings
from django.db import models
from django.db.models import Q

from tasks_app.models.task import Task
from tasks_app.models.words import one_of, word_field


class Lease(models.Model):
    """Who may do a kind of work now. ``token`` is checked again at the write; ``ticked_at`` tells when it last ran."""

    name = models.CharField(primary_key=True, max_length=200)
    token = models.CharField(max_length=64, blank=True)
    held_until = models.DateTimeField(null=True, blank=True)
    ticked_at = models.DateTimeField(null=True, blank=True)
    unbroken_since = models.DateTimeField(null=True, blank=True, help_text="Since when no tick was missed.")

    def __str__(self) -> str:
        return self.name


class RecordState(StrEnum):
    IN_FLIGHT = "in_flight"
    DONE = "done"


class IdempotencyRecord(models.Model):
    """What was answered to a member's key, so that a repeated request gets the same answer."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    method = models.CharField(max_length=8)
    path = models.CharField(max_length=300)
    body_digest = models.CharField(max_length=71)
    state = word_field(RecordState, default=RecordState.DONE)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    response_status = models.PositiveIntegerField(default=0)
    response = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints = (
            one_of("state", RecordState, name="idempotency_state_is_known"),
            models.UniqueConstraint(fields=("user", "method", "path", "key"), name="one_answer_per_user_route_and_key"),
            models.CheckConstraint(condition=~Q(key=""), name="idempotency_key_is_not_empty"),
        )

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Quota(models.Model):
    """How many sandboxes are held in one scope: ``deployment`` or ``workspace:<id>``."""

    scope = models.CharField(primary_key=True, max_length=64)
    used = models.IntegerField(default=0)

    class Meta:
        constraints = (models.CheckConstraint(condition=Q(used__gte=0), name="quota_is_never_negative"),)

    def __str__(self) -> str:
        return self.scope


class Deployment(models.Model):
    """How far the deployment has come: one row, whose twin is a file of the state directory. See the service."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    history = models.CharField(max_length=32)
    epoch = models.BigIntegerField(default=0)

    class Meta:
        permissions = (("confirm_database", "May confirm that the database is the one to go on with"),)
        constraints = (models.CheckConstraint(condition=Q(id=1), name="deployment_is_one_row"),)

    def __str__(self) -> str:
        return f"epoch {self.epoch}"
