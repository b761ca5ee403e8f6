"""Open the change request of a delivery. A plain Git remote has none: the pushed branch and a patch stand for it."""

from pathlib import Path
from typing import Any

from tasks_app import git
from tasks_app.models import Delivery, Task
from tasks_app.models.outcome import ArchiveKind
from tasks_app.services import archive
from tasks_app.services.delivery import patch


def words(delivery: Delivery) -> patch.Words:
    """Give title and body, and the trailer that says where the change comes from."""
    task = delivery.task
    return patch.Words(title=delivery.title, body=delivery.body, trailer=_trailer(task))


def _trailer(task: Task) -> tuple[str, ...]:
    flow = task.flow_version
    return (
        f"Caisson-Task: {task.pk}",
        f"Caisson-Creator: {task.creator.get_username()}",
        f"Caisson-Flow: {flow.flow.name}@{flow.number} {flow.digest}",
        f"Caisson-Policy-Revision: {task.policy_revision.number}",
        f"Caisson-Capabilities: {task.capability_digest}",
    )


def keep_patch(delivery: Delivery, *, mirror: Path, objects: git.Objects) -> dict[str, Any]:
    """Store the difference as a patch for download and give its reference; too big a one is said so instead."""
    try:
        data = patch.write(
            words(delivery), base=delivery.base_commit, commit=delivery.commit, mirror=mirror, objects=objects
        )
    except git.GitFailed as failure:
        return {"missing": failure.code}
    name = f"{delivery.branch.replace('/', '-')}.patch"
    row = archive.keep(delivery.task, ArchiveKind.PATCH, data, name=name)
    return {"digest": row.digest, "size": row.size}


def describe(delivery: Delivery, patch: dict[str, Any]) -> dict[str, Any]:
    """Give the change request of a plain Git remote as the row and the API show it."""
    said = words(delivery)
    return {
        "kind": "branch",
        "title": said.title,
        "body": said.text(),
        "draft": delivery.draft,
        "branch": delivery.branch,
        "commit": delivery.commit,
        "base_commit": delivery.base_commit,
        "number": None,
        "url": None,
        "patch": patch.get("digest"),
    }
