"""Open the change request of a delivery. A plain Git remote has none: the pushed branch and a patch stand for it."""

import hashlib
from io import BytesIO
from pathlib import Path
from typing import Any

from tasks_app import git
from tasks_app.models import Delivery, Task
from tasks_app.services import uploads
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
    digest = hashlib.sha256(data).hexdigest()
    name = f"patches/{delivery.task_id}/{digest}.patch"
    uploads.store(name, BytesIO(data), size=len(data))
    return {"file": name, "digest": f"sha256:{digest}", "size": len(data)}


def describe(delivery: Delivery) -> dict[str, Any]:
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
    }
