"""Tenants and who belongs to them."""

from enum import StrEnum

from django.contrib.auth.models import AbstractUser
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

from workspaces_app import ids
from workspaces_app.querysets import ApiTokenQuerySet, SignInLinkQuerySet
from workspaces_app.states import Forge, Role

SLUG = RegexValidator(r"\A[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z", "1–63 lower-case letters, digits and inner hyphens.")


def choices(words: type[StrEnum]) -> list[tuple[str, str]]:
    """Give Django's choices of an enum."""
    return [(str(word), word.replace("_", " ")) for word in words]


class User(AbstractUser):
    """A person who may sign in. A person with history is deactivated, never removed."""


class Workspace(models.Model):
    """A tenant."""

    id = models.CharField(primary_key=True, max_length=ids.MAX_LENGTH, default=ids.new_workspace_id, editable=False)
    slug = models.CharField(max_length=63, unique=True, validators=[SLUG])
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("slug",)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A user's role in one workspace."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=16, choices=choices(Role))
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("workspace", "user")
        constraints = (
            models.UniqueConstraint(fields=("workspace", "user"), name="one_membership_per_user_and_workspace"),
            models.CheckConstraint(condition=Q(role__in=[str(role) for role in Role]), name="membership_role_is_known"),
        )

    def __str__(self) -> str:
        return f"{self.user} in {self.workspace}: {self.role}"


class Repository(models.Model):
    """A Git repository that tasks of one workspace may start from; ``push_url`` empty means ``clone_url``."""

    id = models.CharField(primary_key=True, max_length=ids.MAX_LENGTH, default=ids.new_repository_id, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="repositories")
    slug = models.CharField(max_length=63, validators=[SLUG])
    forge = models.CharField(max_length=16, choices=choices(Forge), default=Forge.GIT)
    clone_url = models.CharField(max_length=2000)
    push_url = models.CharField(max_length=2000, blank=True)
    default_branch = models.CharField(max_length=200, blank=True, help_text="Empty: what the remote's HEAD names.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("workspace", "slug")
        verbose_name_plural = "repositories"
        constraints = (
            models.UniqueConstraint(fields=("workspace", "slug"), name="one_repository_per_slug_and_workspace"),
            models.CheckConstraint(
                condition=Q(forge__in=[str(forge) for forge in Forge]), name="repository_forge_is_known"
            ),
        )

    def __str__(self) -> str:
        return self.slug

    @property
    def remote(self) -> str:
        """Where deliveries are pushed."""
        return self.push_url or self.clone_url


class AllowedRoot(models.Model):
    """A folder of this machine below which repositories of one workspace may lie. ``path`` is real and absolute."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="allowed_roots")
    path = models.CharField(max_length=1000)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("path",)
        constraints = (
            models.UniqueConstraint(fields=("workspace", "path"), name="one_allowed_root_per_path_and_workspace"),
        )

    def __str__(self) -> str:
        return self.path


class ApiToken(models.Model):
    """A member's key to the API. Only its keyed digest is kept; it dies with the membership."""

    key_id = models.CharField(primary_key=True, max_length=16, editable=False)
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="tokens")
    label = models.CharField(max_length=100)
    pepper_id = models.CharField(max_length=32)
    digest = models.CharField(max_length=64)
    scopes = models.JSONField(default=list)
    cidrs = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.label} ({self.key_id})"


class SignInLink(models.Model):
    """A link that signs one user in once, for a short time. Only its keyed digest is kept."""

    key_id = models.CharField(primary_key=True, max_length=16, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    pepper_id = models.CharField(max_length=32)
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    objects = SignInLinkQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"link for {self.user}"


class AuditEvent(models.Model):
    """Who did what to what, and when. Append-only: the database refuses update and delete.

    Names are copied, not referenced, so that the event outlives what it speaks of.
    """

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=200, help_text="user:<name>, token:<key id> or system:<part>")
    verb = models.CharField(max_length=64, help_text="One of states.Verb; a word that was once written stays readable.")
    object_kind = models.CharField(max_length=32)
    object_id = models.CharField(max_length=64)
    workspace_id = models.CharField(max_length=ids.MAX_LENGTH, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("workspace_id", "-id"), name="audit_by_workspace"),)

    def __str__(self) -> str:
        return f"{self.actor} {self.verb} {self.object_kind} {self.object_id}"
