"""Drivers and flows, each with immutable versions whose identity is the digest of their canonical bytes."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from registry_app.querysets import DriverVersionQuerySet, FlowVersionQuerySet
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Flow as FlowSpec
from sandbox_supervisor.protocol.spec import DriverEntry
from workspaces_app import ids
from workspaces_app.models import SLUG, Workspace


def new_driver_version_id() -> str:
    return ids.new_id("drv")


def new_flow_version_id() -> str:
    return ids.new_id("flv")


class Driver(models.Model):
    """The name of an adapter to one coding agent program."""

    name = models.CharField(max_length=63, unique=True, validators=[SLUG])
    description = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ("name",)
        permissions = (("publish_registry", "May publish drivers and deployment-wide flows"),)

    def __str__(self) -> str:
        return self.name


class DriverVersion(models.Model):
    """One immutable version of a driver. Only yanking it may change the row."""

    id = models.CharField(primary_key=True, max_length=ids.MAX_LENGTH, default=new_driver_version_id, editable=False)
    driver = models.ForeignKey(Driver, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    canonical = models.TextField(help_text="Canonical JSON of the entry.")
    digest = models.CharField(max_length=71)
    created_at = models.DateTimeField(auto_now_add=True)
    yanked_at = models.DateTimeField(null=True, blank=True)
    yanked_because = models.CharField(max_length=500, blank=True)

    objects = DriverVersionQuerySet.as_manager()

    class Meta:
        ordering = ("driver", "-number")
        constraints = (
            models.UniqueConstraint(fields=("driver", "number"), name="one_driver_version_per_number"),
            models.UniqueConstraint(fields=("driver", "digest"), name="one_driver_version_per_digest"),
        )

    def __str__(self) -> str:
        return f"{self.driver.name}@{self.number}"

    @property
    def entry(self) -> DriverEntry:
        return codec.decode(self.canonical, DriverEntry)


class Flow(models.Model):
    """The name of a graph definition. Without a workspace it serves the whole deployment."""

    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, null=True, blank=True, related_name="flows")
    name = models.CharField(max_length=63, validators=[SLUG])

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(
                fields=("workspace", "name"),
                condition=Q(workspace__isnull=False),
                name="one_flow_per_name_and_workspace",
            ),
            models.UniqueConstraint(
                fields=("name",), condition=Q(workspace__isnull=True), name="one_deployment_flow_per_name"
            ),
        )

    def __str__(self) -> str:
        return self.name


class FlowVersion(models.Model):
    """One immutable version of a flow. Only yanking it may change the row."""

    id = models.CharField(primary_key=True, max_length=ids.MAX_LENGTH, default=new_flow_version_id, editable=False)
    flow = models.ForeignKey(Flow, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    source = models.TextField(help_text="The file as it was given.")
    canonical = models.TextField(help_text="Canonical JSON of the compiled flow.")
    digest = models.CharField(max_length=71)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    yanked_at = models.DateTimeField(null=True, blank=True)
    yanked_because = models.CharField(max_length=500, blank=True)

    objects = FlowVersionQuerySet.as_manager()

    class Meta:
        ordering = ("flow", "-number")
        constraints = (models.UniqueConstraint(fields=("flow", "number"), name="one_flow_version_per_number"),)
        indexes = (models.Index(fields=("digest",), name="flow_version_by_digest"),)

    def __str__(self) -> str:
        return f"{self.flow.name}@{self.number}"

    @property
    def compiled(self) -> FlowSpec:
        return codec.decode(self.canonical, FlowSpec)
