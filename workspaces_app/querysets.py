"""Questions about many rows; time is always an argument."""

from datetime import datetime
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q

if TYPE_CHECKING:
    from workspaces_app.models import ApiToken, SignInLink  # noqa: F401


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self, now: datetime) -> "ApiTokenQuerySet":
        """Tokens that are neither revoked nor expired, of people who may still sign in."""
        return self.filter(revoked_at__isnull=True, expires_at__gt=now, membership__user__is_active=True)

    def not_used_since(self, moment: datetime) -> "ApiTokenQuerySet":
        return self.filter(Q(last_used_at__isnull=True) | Q(last_used_at__lt=moment))


class SignInLinkQuerySet(models.QuerySet["SignInLink"]):
    def usable(self, now: datetime) -> "SignInLinkQuerySet":
        """Links that were not used and have not expired, of people who may still sign in."""
        return self.filter(used_at__isnull=True, expires_at__gt=now, user__is_active=True)
