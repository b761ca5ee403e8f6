"""The runtime policy and its revisions."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from policy_app.states import PermissionPolicy
from policy_app.values import NAMES, PolicyValues


class PolicyRevision(models.Model):
    """One immutable revision: the database refuses update and delete. Sizes are bytes, CPU is cores."""

    number = models.PositiveIntegerField(unique=True)
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="children")
    message = models.CharField(max_length=500)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    published_at = models.DateTimeField()

    provider = models.CharField(max_length=63, help_text="Which installed provider makes the sandboxes.")
    template_reference = models.CharField(max_length=253, blank=True)
    runtime_class = models.CharField(max_length=253, blank=True, help_text="Empty: omitted.")
    runner_image = models.CharField(max_length=500, blank=True, help_text="By digest.")
    cpu_request = models.DecimalField(max_digits=8, decimal_places=3, help_text="Cores.")
    cpu_limit = models.DecimalField(max_digits=8, decimal_places=3, help_text="Cores.")
    memory_request = models.BigIntegerField(help_text="Bytes.")
    memory_limit = models.BigIntegerField(help_text="Bytes.")
    ephemeral_storage_limit = models.BigIntegerField(help_text="Bytes.")
    workspace_size = models.BigIntegerField(help_text="Bytes.")
    max_retention = models.DurationField(help_text="How long an ended task's sandbox stays readable.")
    connection_grace = models.DurationField(help_text="How long a missed connection may last before the task fails.")
    start_deadline = models.DurationField(help_text="From creation to running.")
    max_parallel_attempts = models.PositiveIntegerField()
    artefact_quota = models.BigIntegerField(help_text="Bytes.")
    rerun_patience = models.DurationField(help_text="How long a rerun may delay reclamation.")
    archive_patience = models.DurationField(help_text="How long a missing archive may delay reclamation.")
    storage_class = models.CharField(max_length=253, blank=True, help_text="Empty: ephemeral.")
    egress_allow = models.JSONField(default=list, blank=True, help_text="Host names that sandboxes may reach.")
    park_interval = models.DurationField(help_text="How often finished work is parked.")
    archive_sessions = models.BooleanField(default=False, help_text="Keep session texts in the archive.")
    permission_policy = models.CharField(max_length=8, choices=[(str(word), str(word)) for word in PermissionPolicy])
    live_task_quota = models.PositiveIntegerField(help_text="Sandboxes present at one time.")
    disruption_budget = models.BooleanField(default=False)

    class Meta:
        ordering = ("-number",)
        permissions = (("publish_policy", "May publish a policy revision"),)
        constraints = (
            models.CheckConstraint(condition=~Q(message=""), name="policy_revision_has_message"),
            models.CheckConstraint(
                condition=Q(cpu_request__lte=F("cpu_limit")), name="policy_cpu_request_within_limit"
            ),
            models.CheckConstraint(
                condition=Q(memory_request__lte=F("memory_limit")), name="policy_memory_request_within_limit"
            ),
            models.CheckConstraint(
                condition=Q(number=1, parent__isnull=True) | Q(number__gt=1, parent__isnull=False),
                name="policy_revision_has_parent_but_the_first",
            ),
        )

    def __str__(self) -> str:
        return f"revision {self.number}"

    @property
    def values(self) -> PolicyValues:
        found = {name: getattr(self, name) for name in NAMES}
        found["egress_allow"] = tuple(self.egress_allow)
        found["permission_policy"] = PermissionPolicy(self.permission_policy)
        return PolicyValues(**found)


class RuntimePolicy(models.Model):
    """The one policy of the deployment: a pointer to its current revision."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    current = models.ForeignKey(PolicyRevision, on_delete=models.PROTECT, related_name="+")

    class Meta:
        verbose_name_plural = "runtime policy"
        constraints = (models.CheckConstraint(condition=Q(id=1), name="runtime_policy_is_one_row"),)

    def __str__(self) -> str:
        return f"runtime policy at {self.current}"
