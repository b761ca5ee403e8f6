"""The product that runs in CAISSON_STATE_DIR, as a benchmark uses it: started if it is not up, and left up."""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.commands import local
from config.commands.client import ApiProblem, Client
from config.commands.dispatch import prepare_layout
from config.commands.processes import Layout
from config.commands.work import register
from registry_app import demo_project

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 180.0
ENDED = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    layout: Layout
    client: Client
    repository: str  # slug

    def publish(self, source: str) -> str:
        """Publish a flow and give the version's id."""
        made = self.client.post("/flows", {"source": source}, key=f"bench-{time.time_ns()}", If_Match="*")
        return str(made["id"])

    def create(self, flow: str, brief: str) -> dict[str, Any]:
        body = {"repository": self.repository, "flow": flow, "brief": brief}
        made: dict[str, Any] = self.client.post("/tasks", body, key=f"bench-{time.time_ns()}")
        return made

    def graph_when(self, task: str, wanted: str) -> Mapping[str, Any]:
        """Give the graph as soon as its member ``wanted`` is there."""
        return self._poll(task, lambda graph: bool(graph[wanted]))

    def ended(self, task: str) -> Mapping[str, Any]:
        """Give the graph once the task has ended."""
        return self._poll(task, lambda _: self.client.get(f"/tasks/{task}")["status"] in ENDED)

    def _poll(self, task: str, holds: Any) -> Mapping[str, Any]:
        give_up_at = time.monotonic() + PATIENCE
        while time.monotonic() < give_up_at:
            try:
                graph: Mapping[str, Any] = self.client.get(f"/tasks/{task}/graph")
            except ApiProblem as problem:
                if problem.status != 503:
                    raise
            else:
                if holds(graph):
                    return graph
            time.sleep(0.1)
        raise TimeoutError(f"task {task} did not get there within {PATIENCE:.0f} s")

    def delete(self, task: str) -> None:
        self.client.delete(f"/tasks/{task}")


@contextmanager
def product() -> Iterator[Product]:
    """Bring the product up and register the demo project with it."""
    layout = prepare_layout(ROOT, None)
    found = local.bring_up(layout)
    client = Client(found.url, found.token)
    with tempfile.TemporaryDirectory(prefix="caisson-bench-") as folder:
        project = demo_project.create(Path(folder))
        slug = register(client, str(project.repository), push_url=str(project.remote))
        yield Product(layout=layout, client=client, repository=slug)
