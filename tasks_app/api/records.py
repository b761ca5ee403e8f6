"""Turn rows into what the API says about them."""

from datetime import datetime
from typing import Any

from django.conf import settings

from registry_app.models import FlowVersion
from sandbox_supervisor.protocol import codec
from tasks_app.api import shapes
from tasks_app.models import Archive, Delivery, Task, TaskEvent
from tasks_app.services import clock
from tasks_app.services.actions import actions_of
from tasks_app.states import Health, Presence, Status
from workspaces_app.access import Actor

RELATED = ("workspace", "creator", "repository", "flow_version__flow", "policy_revision", "contact")


def task_record(task: Task, actor: Actor, *, now: datetime | None = None) -> shapes.TaskRecord:
    """Describe a task to ``actor``; ``now`` is database time."""
    return shapes.TaskRecord(**_task_members(task, actor, now or clock.database_now()))


def created_task(task: Task, actor: Actor, warnings: tuple[str, ...]) -> shapes.CreatedTask:
    return shapes.CreatedTask(**_task_members(task, actor, clock.database_now()), warnings=warnings)


def _task_members(task: Task, actor: Actor, now: datetime) -> dict[str, Any]:
    contact = task.contact
    return {
        "id": task.pk,
        "workspace": task.workspace.slug,
        "title": task.title,
        "brief": task.brief,
        "creator": task.creator.get_username(),
        "created_at": task.created_at,
        "status": Status(task.status),
        "presence": Presence(task.presence),
        "health": shapes.HealthRecord(
            state=Health(task.health),
            last_contact_at=contact.last_contact_at,
            unreachable_since=contact.unreachable_since,
        ),
        "attention": contact.attention,
        "round": task.round,
        "failure": _failure(task),
        "retention": _retention(task, now),
        "repository": task.repository.slug,
        "remote": task.push_url,
        "base_commit": task.base_commit,
        "base_ref": task.base_ref,
        "task_branch": task.task_branch,
        "flow": task.flow_version.flow.name,
        "flow_version": flow_reference(task.flow_version),
        "policy_revision": task.policy_revision.number,
        "capability_digest": task.capability_digest,
        "provider": task.provider,
        "isolation": task.isolation,
        "sandbox": task.sandbox_name,
        "running_at": task.running_at,
        "cancel_requested_at": task.cancel_requested_at,
        "delete_requested_at": task.delete_requested_at,
        "usage": contact.usage,
        "quarantine": task.quarantine,
        "console_url": f"{settings.PUBLIC_URL}/tasks/{task.pk}",
        "actions": tuple(str(action) for action in actions_of(task, actor, now=now)),
    }


def flow_reference(version: FlowVersion) -> shapes.FlowVersionReference:
    return shapes.FlowVersionReference(
        id=version.pk, name=version.flow.name, number=version.number, digest=version.digest
    )


def _failure(task: Task) -> shapes.FailureRecord | None:
    if not task.failure_code:
        return None
    said = task.failure if isinstance(task.failure, dict) else {}
    facts = said.get("facts")
    return shapes.FailureRecord(
        code=task.failure_code,
        stage=str(said.get("stage", "")),
        message=str(said.get("message", "")),
        facts=facts if isinstance(facts, dict) else {},
    )


def _retention(task: Task, now: datetime) -> shapes.RetentionRecord:
    left = (task.retain_until - now).total_seconds() if task.retain_until else None
    return shapes.RetentionRecord(
        max_seconds=task.max_retention.total_seconds(),
        first_terminal_at=task.first_terminal_at,
        retain_until=task.retain_until,
        seconds_left=None if left is None else max(0.0, left),
        reclaimed_at=task.reclaimed_at,
        remaining=tuple(str(name) for name in task.removal_remaining),
    )


def frozen_task(task: Task) -> shapes.FrozenTask:
    return shapes.FrozenTask(
        task=task.pk,
        repository={
            "slug": task.repository.slug,
            "clone_url": task.clone_url,
            "push_url": task.push_url,
            "base_commit": task.base_commit,
            "base_ref": task.base_ref,
            "task_branch": task.task_branch,
        },
        flow_version=flow_reference(task.flow_version),
        flow=task.flow_version.compiled,
        inputs=task.inputs,
        capability_digest=task.capability_digest,
        capabilities=task.capabilities,
        policy_revision=task.policy_revision.number,
        policy=task.policy,
        provider={
            "name": task.provider,
            "version": task.provider_version,
            "template_reference": task.template_reference,
            "image_digest": task.image_digest,
            "runner_image": task.runner_image,
            "isolation": task.isolation,
        },
        specification_digest=task.specification_digest,
    )


def event_record(event: TaskEvent) -> shapes.EventRecord:
    return shapes.EventRecord(id=event.pk, at=event.at, kind=event.kind, actor=event.actor, data=event.data)


def archive_record(row: Archive) -> shapes.ArchiveRecord:
    return shapes.ArchiveRecord(
        id=row.pk,
        kind=row.kind,
        name=row.name,
        digest=row.digest,
        size=row.size,
        round=row.round,
        state=row.state,
        stored_at=row.stored_at,
    )


def delivery_record(row: Delivery) -> shapes.DeliveryRecord:
    patch = row.facts.get("patch")
    return shapes.DeliveryRecord(
        id=row.pk,
        node=row.node,
        generation=row.generation,
        round=row.round,
        state=row.state,
        branch=row.branch,
        base_commit=row.base_commit,
        commit=row.commit or None,
        title=row.title,
        change_request=row.change_request,
        patch=_patch(row, patch) if isinstance(patch, dict) and "digest" in patch else None,
        code=row.code,
        message=row.message,
        facts={name: value for name, value in row.facts.items() if name != "patch"},
        attempts=row.attempts,
        created_at=row.created_at,
        settled_at=row.settled_at,
    )


def _patch(row: Delivery, patch: dict[str, Any]) -> shapes.PatchReference:
    path = f"/api/v1/tasks/{row.task_id}/deliveries/{row.pk}/patch"
    return codec.convert({"digest": patch["digest"], "size": patch["size"], "path": path}, shapes.PatchReference)
