"""Questions about many rows. Time is an argument: the moment on the database clock that the caller read."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import F, Q

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app.states import LIVE, STANDING, TERMINAL, Health, Presence, SecretState, Status

if TYPE_CHECKING:
    from tasks_app.models import Archive, Delivery, Task, TaskEvent, TaskSnapshot  # noqa: F401


def _due(now: datetime) -> Q:
    return Q(look_again_at__isnull=True) | Q(look_again_at__lte=now)


class TaskQuerySet(models.QuerySet["Task"]):
    def visible_to(self, workspaces: Collection[str]) -> "TaskQuerySet":
        return self.filter(workspace_id__in=workspaces)

    def sound(self) -> "TaskQuerySet":
        """Rows that are not quarantined."""
        return self.filter(quarantine="")

    def holding_branch(self, remote: str, branch: str) -> "TaskQuerySet":
        """Tasks whose sandbox was not reclaimed and that push to this branch."""
        return self.filter(push_url=remote, task_branch=branch).exclude(presence=Presence.RECLAIMED)

    def live(self) -> "TaskQuerySet":
        return self.filter(status__in=LIVE)

    def due_for_provisioning(self, now: datetime) -> "TaskQuerySet":
        """Tasks that have no sandbox yet, or whose creation has an unknown outcome, ended ones included."""
        return self.sound().filter(_due(now), Q(status=Status.PENDING) | Q(presence=Presence.CREATING))

    def due_for_withdrawal(self) -> "TaskQuerySet":
        """Tasks whose secret is still at the provider although nothing needs it any more."""
        ended_or_running = Q(status=Status.RUNNING) | Q(status__in=TERMINAL)
        return self.sound().filter(ended_or_running, secret=SecretState.PRESENT).exclude(presence=Presence.CREATING)

    def due_for_observation(self) -> "TaskQuerySet":
        """Tasks whose sandbox stands, ended or not."""
        return self.sound().filter(presence=Presence.PRESENT)

    def to_be_judged(self, silent_since: datetime) -> "TaskQuerySet":
        """Tasks that are starting, silent since ``silent_since``, unreachable, or on the way to their deletion."""
        silent = Q(contact__last_contact_at__lte=silent_since) | Q(health=Health.UNREACHABLE)
        deleting = Q(delete_requested_at__isnull=False, presence__in=(Presence.NONE, *STANDING))
        return self.sound().filter(Q(status=Status.PROVISIONING) | (Q(presence=Presence.PRESENT) & silent) | deleting)

    def due_for_reclaim(self, now: datetime) -> "TaskQuerySet":
        """Tasks whose deadline has passed, that a person deleted, or whose removal is under way."""
        return (
            self.sound()
            .exclude(presence=Presence.RECLAIMED)
            .filter(
                (Q(retain_until__lt=now) | Q(delete_requested_at__isnull=False)) & ~Q(presence=Presence.RECLAIMING)
                | Q(presence=Presence.RECLAIMING) & _due(now)
            )
        )

    def expiring_within(self, now: datetime, window: timedelta) -> "TaskQuerySet":
        """Ended tasks whose deadline is near and that were not told so: see ``TaskEvent.key``."""
        return self.sound().filter(
            status__in=TERMINAL, presence__in=STANDING, retain_until__gt=now, retain_until__lte=now + window
        )


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def unsettled(self) -> "DeliveryQuerySet":
        return self.filter(state__in=(DeliveryState.RECEIVED, DeliveryState.QUEUED))

    def due(self, now: datetime) -> "DeliveryQuerySet":
        """Deliveries that a worker should carry on with."""
        return self.filter(_due(now), state=DeliveryState.QUEUED, task__quarantine="")

    def settled_since(self, moment: datetime) -> "DeliveryQuerySet":
        return self.filter(settled_at__gte=moment)


class ArchiveQuerySet(models.QuerySet["Archive"]):
    def whole(self) -> "ArchiveQuerySet":
        return self.filter(stored_at__isnull=False, received=F("size"))


class TaskSnapshotQuerySet(models.QuerySet["TaskSnapshot"]):
    def latest_of(self, task_id: str) -> "TaskSnapshot | None":
        return self.filter(task_id=task_id).order_by("-round").first()


class TaskEventQuerySet(models.QuerySet["TaskEvent"]):
    def unpublished(self) -> "TaskEventQuerySet":
        return self.filter(published_at__isnull=True).order_by("id")
