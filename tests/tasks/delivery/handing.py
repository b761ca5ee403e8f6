"""What a sandbox does to hand a delivery over, and what a worker does with it."""

import hashlib
from pathlib import Path

from sandbox_supervisor.protocol.messages import DeliveryAnswer, DeliveryRequest, DeliveryState
from tasks_app.models import Delivery, Task
from tasks_app.services import archive, delivery
from tests.git_remotes import Project

CHUNK = 1024 * 1024


def request_for(task: Task, commit: str, bundle: Path | None, **changes: object) -> DeliveryRequest:
    data = bundle.read_bytes() if bundle else b""
    generation = changes.get("generation", 1)
    values: dict[str, object] = {
        "key": f"{task.pk}:deliver:{generation}:push",
        "node": "deliver",
        "generation": generation,
        "round": 1,
        "base_commit": task.base_commit,
        "commit": commit,
        "bundle_digest": f"sha256:{hashlib.sha256(data).hexdigest()}" if bundle else None,
        "bundle_size": len(data),
        "title": "Add a file",
        "body": "As asked.",
        "change_request": True,
    }
    return DeliveryRequest(**values | changes)  # type: ignore[arg-type]


def send(task: Task, request: DeliveryRequest, bundle: Path) -> DeliveryAnswer:
    answer = delivery.receive(task, request)
    data = bundle.read_bytes()
    while answer.state is DeliveryState.RECEIVED:
        chunk = data[answer.offset : answer.offset + CHUNK]
        answer = delivery.accept_chunk(task, answer.id, offset=answer.offset, data=chunk)
    return answer


def hand_over(project: Project, task: Task, files: dict[str, str | bytes] | None = None, **changes: object) -> Delivery:
    """Bring a commit with ``files`` up to the queue."""
    commit = project.commit(files or {"a.txt": "a\n"})
    bundle = project.bundle(commit, branch=task.task_branch)
    answer = send(task, request_for(task, commit, bundle, **changes), bundle)
    return Delivery.objects.get(pk=answer.id)


def carried(row: Delivery) -> Delivery:
    """Let a worker take the delivery now, whatever back-off it has."""
    Delivery.objects.filter(pk=row.pk).update(look_again_at=None)
    delivery.deliver(row.pk)
    row.refresh_from_db()
    return row


def patch_of(row: Delivery) -> bytes:
    _, file = archive.open_file(row.task, (row.change_request or {})["patch"])
    with file:
        return bytes(file.read())
