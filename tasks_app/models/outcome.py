"""What left the sandbox for good: deliveries, archives, the final snapshot."""

from enum import StrEnum

from django.db import models
from django.db.models import Q

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app.models.task import Task
from tasks_app.models.words import id_field, new_archive_id, new_delivery_id, one_of, word_field
from tasks_app.querysets import ArchiveQuerySet, DeliveryQuerySet, TaskSnapshotQuerySet

UNSETTLED = (DeliveryState.RECEIVED, DeliveryState.QUEUED)


class DeliveryKind(StrEnum):
    PUSH = "push"


class Delivery(models.Model):
    """One result of one delivery node on its way to the remote. ``key`` and the four together make it happen once."""

    id = id_field(new_delivery_id)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="deliveries")
    node = models.CharField(max_length=63)
    generation = models.PositiveIntegerField()
    kind = word_field(DeliveryKind, default=DeliveryKind.PUSH)
    round = models.PositiveIntegerField(default=1)
    key = models.CharField(max_length=200, unique=True)
    request_digest = models.CharField(
        max_length=71, blank=True, help_text="Of the request: the same key with another is refused."
    )

    state = word_field(DeliveryState, default=DeliveryState.RECEIVED)
    branch = models.CharField(max_length=250)
    base_commit = models.CharField(max_length=64)
    commit = models.CharField(max_length=64, blank=True, help_text="Empty: nothing to deliver.")
    expected_old = models.CharField(
        max_length=64, blank=True, help_text="What the remote branch must hold; empty: absent."
    )
    title = models.CharField(max_length=500, blank=True)
    body = models.TextField(blank=True)
    draft = models.BooleanField(default=False)
    wants_change_request = models.BooleanField(default=False)
    change_request = models.JSONField(null=True, blank=True)

    bundle_digest = models.CharField(max_length=71, blank=True)
    bundle_size = models.BigIntegerField(default=0)
    bundle_received = models.BigIntegerField(default=0)
    bundle_file = models.CharField(max_length=300, blank=True)

    code = models.CharField(max_length=64, blank=True)
    message = models.CharField(max_length=1000, blank=True)
    facts = models.JSONField(default=dict, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    look_again_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        ordering = ("id",)
        verbose_name_plural = "deliveries"
        indexes = (models.Index(fields=("state", "look_again_at"), name="delivery_due"),)
        constraints = (
            one_of("state", DeliveryState, name="delivery_state_is_known"),
            one_of("kind", DeliveryKind, name="delivery_kind_is_known"),
            models.UniqueConstraint(
                fields=("task", "node", "generation", "kind"), name="one_delivery_per_task_node_generation_and_kind"
            ),
            models.CheckConstraint(
                condition=~Q(state=DeliveryState.DELIVERED) | ~Q(commit=""), name="delivery_names_its_commit"
            ),
            models.CheckConstraint(
                condition=Q(state__in=UNSETTLED, settled_at__isnull=True)
                | (~Q(state__in=UNSETTLED) & Q(settled_at__isnull=False)),
                name="delivery_settled_says_when",
            ),
            models.CheckConstraint(
                condition=Q(bundle_received__lte=models.F("bundle_size")), name="delivery_bundle_within_its_size"
            ),
        )

    def __str__(self) -> str:
        return self.id


class ArchiveKind(StrEnum):
    SNAPSHOT = "snapshot"
    CAPSULE = "capsule"
    PARKED = "parked"
    ARTEFACT = "artefact"
    PATCH = "patch"  # what a delivery changed, written by the control plane


class ArchiveState(StrEnum):
    RECEIVING = "receiving"
    STORED = "stored"
    LOST = "lost"


class Archive(models.Model):
    """A file kept in Storage by its digest; opaque to every decision but whether it has arrived."""

    id = id_field(new_archive_id)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="archives")
    kind = word_field(ArchiveKind, default=ArchiveKind.ARTEFACT)
    round = models.PositiveIntegerField(default=1)
    name = models.CharField(max_length=500, blank=True)
    digest = models.CharField(max_length=71)
    size = models.BigIntegerField()
    received = models.BigIntegerField(default=0)
    file = models.CharField(max_length=300, blank=True)
    media_type = models.CharField(max_length=100, blank=True)
    facts = models.JSONField(default=dict, blank=True)
    state = word_field(ArchiveState, default=ArchiveState.RECEIVING)
    created_at = models.DateTimeField()
    stored_at = models.DateTimeField(null=True, blank=True)

    objects = ArchiveQuerySet.as_manager()

    class Meta:
        ordering = ("id",)
        constraints = (
            one_of("kind", ArchiveKind, name="archive_kind_is_known"),
            one_of("state", ArchiveState, name="archive_state_is_known"),
            models.UniqueConstraint(fields=("task", "kind", "digest"), name="one_archive_per_task_kind_and_digest"),
            models.CheckConstraint(condition=Q(received__lte=models.F("size")), name="archive_within_its_size"),
            models.CheckConstraint(
                condition=~Q(state=ArchiveState.STORED) | Q(received=models.F("size"), stored_at__isnull=False),
                name="archive_stored_is_whole",
            ),
        )

    def __str__(self) -> str:
        return self.id


class TaskSnapshot(models.Model):
    """The final picture of one round, as the supervisor told it: what still answers after reclamation."""

    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="snapshots")
    round = models.PositiveIntegerField()
    digest = models.CharField(max_length=71)
    data = models.JSONField(help_text="protocol.messages.Snapshot")
    stored_at = models.DateTimeField()

    objects = TaskSnapshotQuerySet.as_manager()

    class Meta:
        ordering = ("task", "-round")
        constraints = (models.UniqueConstraint(fields=("task", "round"), name="one_snapshot_per_task_and_round"),)

    def __str__(self) -> str:
        return f"snapshot of {self.task_id}, round {self.round}"
