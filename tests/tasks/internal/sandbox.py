"""A client that speaks to the internal API as the supervisor of one task does."""

import hashlib
from typing import Any

from django.test import Client

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import NodeView, Snapshot
from sandbox_supervisor.protocol.states import GraphState, NodeState
from tasks_app.models import Task
from tasks_app.services import tokens

MIB = 1024 * 1024


class Sandbox:
    """A client that speaks like the supervisor of one task."""

    def __init__(self, task: Task, token: str | None = None) -> None:
        self.client = Client(raise_request_exception=False, headers={"Host": "control"})
        self.token = tokens.task_token(task) if token is None else token

    def call(self, method: str, path: str, data: bytes = b"", **query: object) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        text = "&".join(f"{name}={value}" for name, value in query.items())
        return self.client.generic(
            method, f"/internal/v1/{path}?{text}", data, content_type="application/octet-stream", headers=headers
        )

    def upload(self, path: str, data: bytes, step: int = MIB, **query: object) -> Any:
        """Send everything from the beginning; give the last answer."""
        response = None
        for offset in range(0, max(1, len(data)), step):
            response = self.call("PUT", path, data[offset : offset + step], offset=offset, size=len(data), **query)
            assert response.status_code in {201, 202}, response.content
        return response


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def snapshot(task: Task, **changes: Any) -> bytes:
    values: dict[str, Any] = {
        "epoch": "e1",
        "seq": 7,
        "graph": GraphState.SUCCEEDED,
        "round": task.round,
        "boot": 1,
        "nodes": (
            NodeView(key="work", kind="command", state=NodeState.SUCCEEDED, generation=1, result_commit="b" * 40),
        ),
        "attempts": (),
        "requests": (),
    }
    return codec.encode(Snapshot(**values | changes))
