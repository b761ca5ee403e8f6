"""What the lifecycle tests hold in their hands."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from registry_app.models import FlowVersion
from sandbox_providers.scripted import Box, World
from sandbox_supervisor.protocol.messages import Head, Heartbeat, HeartbeatAnswer
from sandbox_supervisor.protocol.states import GraphState
from tasks_app.models import Task, TaskSnapshot
from tasks_app.services import contact, provisioning, retention
from tasks_app.services.creation import Created, TaskRequest, create_task
from tests.git_remotes import Project
from workspaces_app.access import Actor
from workspaces_app.models import Repository, User, Workspace
from workspaces_app.services.repositories import allow_root, register

START = datetime(2030, 1, 1, 12, tzinfo=UTC)

FLOW = """
apiVersion: caisson/v1
kind: Flow
name: one-command
inputs:
  count: {type: integer, default: 1, minimum: 1}
nodes:
  - key: work
    command: {run: "true"}
"""

DELIVERY_FLOW = """
apiVersion: caisson/v1
kind: Flow
name: with-delivery
nodes:
  - key: work
    command: {run: "true"}
    changes: keep
  - key: deliver
    needs: [work]
    delivery: {}
"""


class Clock:
    """A database clock that stands still until a test moves it, and the monotonic one beside it."""

    def __init__(self, start: datetime) -> None:
        self.moment = start
        self.instant = 1000.0

    def __call__(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.instant

    def advance(self, **duration: float) -> datetime:
        """Let time pass for everybody."""
        step = timedelta(**duration)
        self.moment += step
        self.instant += step.total_seconds()
        return self.moment

    def jump(self, **duration: float) -> None:
        """Set the database clock forward alone."""
        self.moment += timedelta(**duration)


@dataclass
class House:
    world: World
    clock: Clock
    project: Project
    actor: Actor
    admin: User
    workspace: Workspace
    repository: Repository
    flow: FlowVersion
    delivery_flow: FlowVersion

    def __post_init__(self) -> None:
        self._keys = count(1)
        self._beats = count(1)

    # --- tasks in each state ---

    def request(self, **changes: Any) -> TaskRequest:
        plain = TaskRequest(
            workspace_id=self.workspace.pk,
            repository_id=self.repository.pk,
            flow_version_id=self.flow.pk,
            title="Feed the pets",
        )
        return replace(plain, **changes)

    def create(self, *, key: str = "", **changes: Any) -> Created:
        return create_task(self.actor, self.request(**changes), idempotency_key=key or f"key-{next(self._keys)}")

    def pending(self, **changes: Any) -> Task:
        return self.create(**changes).task

    def starting(self, **changes: Any) -> Task:
        return provisioning.provision(self.pending(**changes).pk)

    def running(self, **changes: Any) -> Any:
        task = self.starting(**changes)
        self.beat(task)
        return self.again(task)

    def ended(self, graph: GraphState = GraphState.SUCCEEDED, **changes: Any) -> Any:
        task = self.running(**changes)
        self.beat(task, graph=graph)
        return self.again(task)

    def archived(self, task: Task, *, round_: int = 1) -> Task:
        TaskSnapshot.objects.create(
            task=task, round=round_, digest="sha256:" + "a" * 64, data={"nodes": []}, stored_at=self.clock()
        )
        return task

    # --- what happens to them ---

    def again(self, task: Task) -> Any:
        return Task.objects.select_related("contact").get(pk=task.pk)

    def box(self, task: Task) -> Box:
        return self.world.boxes[task.sandbox_name]

    def heartbeat(self, task: Task, **changes: Any) -> Heartbeat:
        task = self.again(task)
        plain = Heartbeat(
            instance=task.instance or "instance-1",
            epoch="epoch-1",
            boot=1,
            round=task.round,
            beat=next(self._beats),
            head=Head(seq=10, chain="c" * 64),
            graph=GraphState.RUNNING,
            ready=True,
            specification=task.specification_digest,
        )
        return replace(plain, **changes)

    def beat(self, task: Task, **changes: Any) -> HeartbeatAnswer:
        return contact.record_heartbeat(task.pk, self.heartbeat(task, **changes))

    def sweep_contact(self, *, seconds: float = 0) -> None:
        """Let the contact sweep run every five seconds for so long, at least once."""
        contact.sweep()
        for _ in range(int(seconds // 5)):
            self.clock.advance(seconds=5)
            contact.sweep()

    def reclaim_all(self) -> None:
        retention.sweep()

    def kinds(self, task: Task) -> list[str]:
        return list(task.events.order_by("id").values_list("kind", flat=True))


def use(house: House, path: Path, *, slug: str = "own", push: Path | None = None) -> Repository:
    """Let further tasks of the house work on the repository at ``path``."""
    allow_root(workspace=house.workspace, path=str(Path(path).parent), by=house.actor)
    repository = register(
        workspace=house.workspace, slug=slug, clone_url=str(path), push_url=str(push) if push else "", by=house.actor
    )
    house.repository = repository
    return repository
