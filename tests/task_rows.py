"""Rows for tests, made the shortest way: a workspace and its people, a frozen flow, a task at any point of its life."""

import itertools
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from policy_app.models import PolicyRevision
from policy_app.services.publish import seed_revision
from policy_app.values import PolicyValues
from registry_app.models import Flow, FlowVersion
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import ChangeRequest, Command, Node, NodeKind
from sandbox_supervisor.protocol.flow import Delivery as DeliverySpec
from sandbox_supervisor.protocol.flow import Flow as FlowSpec
from sandbox_supervisor.protocol.messages import DeliveryState
from sandbox_supervisor.protocol.spec import Limits, TaskInfo, TaskSpecification
from sandbox_supervisor.protocol.spec import Repository as SpecRepository
from tasks_app.models import Delivery, Task, TaskContact
from tasks_app.models.outcome import ArchiveKind
from tasks_app.services import archive, clock, tokens
from tasks_app.states import TERMINAL, Presence, Status
from workspaces_app.models import Membership, Repository, User, Workspace
from workspaces_app.states import Role

_numbers = itertools.count(1)

FLOW = FlowSpec(
    name="work",
    nodes=(
        Node(key="work", kind=NodeKind.COMMAND, command=Command(run="true")),
        Node(
            key="deliver",
            kind=NodeKind.DELIVERY,
            needs=("work",),
            delivery=DeliverySpec(change_request=ChangeRequest()),
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """One workspace with a member of each role, a repository and a flow."""

    workspace: Workspace
    members: dict[Role, Membership]
    repository: Repository
    flow_version: FlowVersion

    def user(self, role: Role = Role.OPERATOR) -> User:
        return self.members[role].user


def make_house(slug: str = "main", *, remote: str = "/srv/none.git", push_url: str = "") -> House:
    workspace = Workspace.objects.create(slug=slug, name=slug.title())
    members = {
        role: Membership.objects.create(
            workspace=workspace, user=User.objects.create(username=f"{slug}-{role}"), role=role
        )
        for role in Role
    }
    repository = Repository.objects.create(workspace=workspace, slug="project", clone_url=remote, push_url=push_url)
    flow = Flow.objects.create(workspace=workspace, name=FLOW.name)
    version = FlowVersion.objects.create(
        flow=flow, number=1, source="", canonical=codec.canonical(FLOW).decode(), digest=codec.digest(FLOW)
    )
    return House(workspace=workspace, members=members, repository=repository, flow_version=version)


def policy() -> PolicyRevision:
    return seed_revision(PolicyValues(), now=clock.database_now())


def make_task(
    house: House,
    *,
    status: Status = Status.RUNNING,
    presence: Presence = Presence.PRESENT,
    base_commit: str = "a" * 40,
    creator: Role = Role.OPERATOR,
    **columns: Any,
) -> Task:
    """Insert a task as creation would have frozen it, already at ``status`` and ``presence``."""
    number, now, revision = next(_numbers), clock.database_now(), policy()
    specification = _specification(house, number, base_commit)
    moments: dict[str, Any] = {"running_at": now} if status is Status.RUNNING or status in TERMINAL else {}
    if status in TERMINAL:
        moments |= {"first_terminal_at": now, "retain_until": now + timedelta(days=1)}
    if status is Status.FAILED:
        moments |= {"failure_code": "node_failed", "failure": {"message": "The node work failed.", "facts": {}}}
    if presence is Presence.RECLAIMED:
        moments |= {"reclaimed_at": now, "removal_reason": "deadline_passed"}
    values: dict[str, Any] = {
        "id": specification.task.id,
        "workspace": house.workspace,
        "creator": house.user(creator),
        "title": "Do the work",
        "brief": "Please do the work.",
        "created_at": now,
        "repository": house.repository,
        "clone_url": house.repository.clone_url,
        "push_url": house.repository.remote,
        "base_commit": base_commit,
        "base_ref": "refs/heads/main",
        "task_branch": specification.repository.task_branch,
        "flow_version": house.flow_version,
        "requires_delivery": True,
        "capability_digest": "sha256:" + "c" * 64,
        "policy_revision": revision,
        "policy": {"artefact_quota": revision.artefact_quota},
        "cpu_request": Decimal(1),
        "cpu_limit": Decimal(1),
        "memory_request": 1,
        "memory_limit": 1,
        "max_retention": timedelta(days=1),
        "connection_grace": timedelta(minutes=5),
        "start_deadline": timedelta(minutes=10),
        "rerun_patience": timedelta(hours=1),
        "archive_patience": timedelta(hours=2),
        "provider": "local",
        "provider_version": "1",
        "sandbox_name": f"sandbox-{number}",
        "nonce": f"nonce-{number}",
        "token_key_id": tokens.pepper_in_use(),
        "specification": codec.canonical(specification),
        "specification_digest": codec.digest(specification),
        "status": status,
        "presence": presence,
        "instance": "instance-1",
    }
    task = Task.objects.create(**values | moments | columns)
    TaskContact.objects.create(task=task)
    return task


def make_delivery(task: Task, *, patch: bytes | None = None, **columns: Any) -> Delivery:
    """Insert a settled delivery of the task, with its kept patch when there is one."""
    now = clock.database_now()
    values: dict[str, Any] = {
        "task": task,
        "node": "deliver",
        "generation": 1,
        "key": f"{task.pk}:deliver:1:push",
        "state": DeliveryState.DELIVERED,
        "branch": task.task_branch,
        "base_commit": task.base_commit,
        "commit": "b" * 40,
        "title": "Add a file",
        "change_request": {"kind": "branch", "title": "Add a file", "number": None},
        "created_at": now,
        "settled_at": now,
    }
    if patch is not None:
        kept = archive.keep(task, ArchiveKind.PATCH, patch, name="work.patch")
        values["facts"] = {"patch": {"digest": kept.digest, "size": kept.size}}
    return Delivery.objects.create(**values | columns)


def _specification(house: House, number: int, base_commit: str) -> TaskSpecification:
    from tasks_app.models.words import new_task_id

    task_id = new_task_id()
    return TaskSpecification(
        task=TaskInfo(id=task_id, title="Do the work", brief="", creator="ada", workspace=house.workspace.slug),
        repository=SpecRepository(
            slug=house.repository.slug,
            clone_url=house.repository.clone_url,
            base_commit=base_commit,
            base_ref="refs/heads/main",
            task_branch=f"caisson/work-{number}",
        ),
        flow=FLOW,
        nonce=f"nonce-{number}",
        limits=Limits(),
    )
