"""The task record."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from sandbox_providers.contract import SandboxRef
from tasks_app.models.words import id_field, new_task_id, one_of, word_field
from tasks_app.querysets import TaskQuerySet
from tasks_app.states import LIVE, FailureCode, Health, Presence, RemovalReason, SecretState, Status

MOVED_ON = [Presence.RECLAIMING, Presence.RECLAIMED]


class Task(models.Model):
    """One request for work, tied to one sandbox.

    Everything up to ``specification_digest`` is frozen: the database refuses to change it after the insert, and
    ``first_terminal_at`` and ``retain_until`` once they are set. Only ``services/lifecycle.py`` writes the rest.
    """

    id = id_field(new_task_id)
    workspace = models.ForeignKey("workspaces_app.Workspace", on_delete=models.PROTECT, related_name="tasks")
    creator = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    title = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    # what is asked; frozen
    brief = models.TextField(blank=True)
    repository = models.ForeignKey("workspaces_app.Repository", on_delete=models.PROTECT, related_name="tasks")
    clone_url = models.CharField(max_length=2000)
    push_url = models.CharField(max_length=2000)
    base_commit = models.CharField(max_length=64)
    base_ref = models.CharField(max_length=250, blank=True)
    task_branch = models.CharField(max_length=250)
    flow_version = models.ForeignKey("registry_app.FlowVersion", on_delete=models.PROTECT, related_name="tasks")
    inputs = models.JSONField(default=dict, blank=True)
    requires_delivery = models.BooleanField(default=False)
    # what it depends on (frozen)
    capability_digest = models.CharField(max_length=71)
    capabilities = models.JSONField(default=list, blank=True)
    policy_revision = models.ForeignKey("policy_app.PolicyRevision", on_delete=models.PROTECT, related_name="tasks")
    policy = models.JSONField(default=dict, help_text="The whole revision, copied.")
    runner_image = models.CharField(max_length=500, blank=True)
    cpu_request = models.DecimalField(max_digits=8, decimal_places=3)
    cpu_limit = models.DecimalField(max_digits=8, decimal_places=3)
    memory_request = models.BigIntegerField()
    memory_limit = models.BigIntegerField()
    max_retention = models.DurationField()
    connection_grace = models.DurationField()
    start_deadline = models.DurationField()
    rerun_patience = models.DurationField()
    archive_patience = models.DurationField()
    # who carries it out (frozen)
    provider = models.CharField(max_length=63)
    provider_version = models.CharField(max_length=63)
    template_reference = models.CharField(max_length=253, blank=True)
    image_digest = models.CharField(max_length=100, blank=True)
    isolation = models.CharField(max_length=100, blank=True)
    sandbox_name = models.CharField(max_length=63, unique=True)
    nonce = models.CharField(max_length=64)
    token_key_id = models.CharField(max_length=32)
    specification = models.BinaryField()
    specification_digest = models.CharField(max_length=71)

    # where it stands
    rev = models.BigIntegerField(default=0)
    status = word_field(Status, default=Status.PENDING)
    presence = word_field(Presence, default=Presence.NONE)
    health = word_field(Health, default=Health.UNKNOWN)
    secret = word_field(SecretState, default=SecretState.NONE)
    round = models.PositiveIntegerField(default=1)
    failure_code = word_field(FailureCode, default="", blank=True)
    failure = models.JSONField(default=dict, blank=True, help_text="stage, message, facts")
    sandbox = models.JSONField(null=True, blank=True, help_text="The provider's reference; opaque.")
    instance = models.CharField(max_length=200, blank=True)
    endpoint = models.JSONField(null=True, blank=True, help_text="host, port, fingerprint of the supervisor")
    absent_since = models.DateTimeField(null=True, blank=True)
    absent_reads = models.PositiveIntegerField(default=0)
    trouble = models.CharField(max_length=500, blank=True, help_text="Why the sandbox could not be created yet.")
    removal_reason = word_field(RemovalReason, default="", blank=True)
    removal_remaining = models.JSONField(default=list, blank=True)
    quota_held = models.BooleanField(default=True)
    quarantine = models.CharField(max_length=500, blank=True, help_text="Why the sweeps leave this row alone.")
    attempts = models.PositiveIntegerField(default=0, help_text="Tries of the effect that is due, for its back-off.")
    look_again_at = models.DateTimeField(null=True, blank=True)

    provisioning_at = models.DateTimeField(null=True, blank=True)
    creating_at = models.DateTimeField(
        null=True, blank=True, help_text="When the provider was last to be asked for the sandbox."
    )
    provisioned_at = models.DateTimeField(null=True, blank=True)
    running_at = models.DateTimeField(null=True, blank=True)
    secret_withdrawn_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    delete_requested_at = models.DateTimeField(null=True, blank=True)
    first_terminal_at = models.DateTimeField(null=True, blank=True)
    retain_until = models.DateTimeField(null=True, blank=True)
    lost_at = models.DateTimeField(null=True, blank=True)
    reclaimed_at = models.DateTimeField(null=True, blank=True)

    objects = TaskQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("workspace", "-id"), name="task_list"),
            models.Index(fields=("status", "presence"), name="task_sweeps"),
            models.Index(fields=("retain_until",), condition=~Q(presence=Presence.RECLAIMED), name="task_deadlines"),
        )
        constraints = (
            one_of("status", Status, name="task_status_is_known"),
            one_of("presence", Presence, name="task_presence_is_known"),
            one_of("health", Health, name="task_health_is_known"),
            one_of("secret", SecretState, name="task_secret_is_known"),
            one_of("failure_code", FailureCode, name="task_failure_is_known", blank=True),
            one_of("removal_reason", RemovalReason, name="task_removal_reason_is_known", blank=True),
            models.CheckConstraint(
                condition=Q(status__in=sorted(LIVE)) | Q(first_terminal_at__isnull=False, retain_until__isnull=False),
                name="task_terminal_has_deadline",
            ),
            models.CheckConstraint(
                condition=Q(first_terminal_at__isnull=True, retain_until__isnull=True)
                | Q(retain_until__gte=F("first_terminal_at")),
                name="task_deadline_follows_its_end",
            ),
            models.CheckConstraint(
                condition=~Q(status=Status.FAILED) | ~Q(failure_code=""), name="task_failed_says_why"
            ),
            models.CheckConstraint(
                condition=~Q(presence__in=MOVED_ON) | ~Q(removal_reason=""), name="task_removal_has_a_reason"
            ),
            models.CheckConstraint(
                condition=~Q(presence__in=MOVED_ON) | ~Q(status__in=sorted(LIVE)), name="task_is_ended_before_removal"
            ),
            models.CheckConstraint(
                condition=Q(presence=Presence.RECLAIMED, reclaimed_at__isnull=False)
                | (~Q(presence=Presence.RECLAIMED) & Q(reclaimed_at__isnull=True)),
                name="task_reclaimed_says_when",
            ),
            models.CheckConstraint(
                condition=~Q(status=Status.RUNNING) | Q(running_at__isnull=False), name="task_running_says_since_when"
            ),
            models.UniqueConstraint(
                fields=("push_url", "task_branch"),
                condition=~Q(presence=Presence.RECLAIMED),
                name="task_branch_is_its_own",
            ),
        )

    def __str__(self) -> str:
        return self.id

    @property
    def sandbox_ref(self) -> SandboxRef | None:
        """The provider's reference. Raises InvalidSpec when the row holds something else."""
        return None if self.sandbox is None else SandboxRef.from_json(self.sandbox)

    @property
    def is_live(self) -> bool:
        return self.status in LIVE


COPIED = (
    "cpu_request",
    "cpu_limit",
    "memory_request",
    "memory_limit",
    "max_retention",
    "connection_grace",
    "start_deadline",
    "rerun_patience",
    "archive_patience",
    "template_reference",
)
"""Values of the policy that have a column of their own."""

FROZEN = (
    "workspace_id",
    "creator_id",
    "created_at",
    "brief",
    "repository_id",
    "clone_url",
    "push_url",
    "base_commit",
    "base_ref",
    "task_branch",
    "flow_version_id",
    "inputs",
    "requires_delivery",
    "capability_digest",
    "capabilities",
    "policy_revision_id",
    "policy",
    "runner_image",
    *COPIED,
    "provider",
    "provider_version",
    "image_digest",
    "isolation",
    "sandbox_name",
    "nonce",
    "token_key_id",
    "specification",
    "specification_digest",
)
"""Columns of Task that never change after the insert."""


class TaskContact(models.Model):
    """What the task's supervisor last said; its own row, so that a heartbeat stays cheap. A cache of no decision."""

    task = models.OneToOneField(Task, on_delete=models.PROTECT, primary_key=True, related_name="contact")
    last_contact_at = models.DateTimeField(null=True, blank=True)
    unreachable_since = models.DateTimeField(null=True, blank=True)
    instance = models.CharField(max_length=200, blank=True)
    epoch = models.CharField(max_length=64, blank=True)
    boot = models.BigIntegerField(default=0)
    round = models.BigIntegerField(default=0)
    beat = models.BigIntegerField(default=0)
    head_seq = models.BigIntegerField(default=0)
    head_chain = models.CharField(max_length=128, blank=True)
    ready = models.BooleanField(default=False)
    readiness = models.JSONField(default=dict, blank=True)
    attention = models.PositiveIntegerField(default=0)
    usage = models.JSONField(default=dict, blank=True)
    disk_used = models.BigIntegerField(default=0)
    memory_used = models.BigIntegerField(default=0)
    protocol = models.PositiveIntegerField(default=1)

    class Meta:
        indexes = (models.Index(fields=("last_contact_at",), name="contact_oldest_first"),)

    def __str__(self) -> str:
        return f"contact of {self.task_id}"
