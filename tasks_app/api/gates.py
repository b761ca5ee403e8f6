"""Find what a path names, if the actor may; what is not theirs does not exist."""

from registry_app.models import FlowVersion
from tasks_app.api.records import RELATED
from tasks_app.api.shapes import NewTask
from tasks_app.errors import NotVisible
from tasks_app.models import Task
from tasks_app.services.creation import TaskRequest
from workspaces_app.access import Actor, Permission, authorise
from workspaces_app.models import Repository
from workspaces_app.rest.choosing import workspace_for

FLOWS_NAMED = 20  # to whoever asks for one that there is not


def visible_task(actor: Actor, task_id: str, permission: Permission = Permission.VIEW_TASKS) -> Task:
    """Give the task if ``actor`` may do ``permission`` with it. Raises NotVisible or Forbidden."""
    task = Task.objects.visible_to(actor.workspaces).select_related(*RELATED).filter(pk=task_id).first()
    if task is None:
        raise NotVisible(f"There is no task {task_id[:40]!r}.", code="task_unknown")
    authorise(actor, permission, task.workspace_id, creator_id=task.creator_id)
    return task


def task_request(actor: Actor, asked: NewTask) -> TaskRequest:
    """Find what a new task names. Raises NotVisible with the member that names nothing, Forbidden."""
    workspace = workspace_for(actor, asked.workspace)
    authorise(actor, Permission.CREATE_TASK, workspace.pk)
    return TaskRequest(
        workspace_id=workspace.pk,
        repository_id=_repository(workspace.pk, asked.repository),
        flow_version_id=_flow_version(workspace.pk, asked.flow),
        title=asked.title,
        brief=asked.brief,
        base=asked.base,
        task_branch=asked.task_branch,
        inputs=asked.inputs,
    )


def _repository(workspace_id: str, named: str) -> str:
    there = Repository.objects.filter(workspace_id=workspace_id)
    found = there.filter(slug=named).first() or there.filter(pk=named).first()
    if found is None:
        raise NotVisible(
            f"The workspace has no repository {named!r}; register it first.",
            code="repository_unknown",
            pointer="/repository",
        )
    return found.pk


def _flow_version(workspace_id: str, named: str) -> str:
    """Give the id of a flow's version: the workspace's own flow comes before the deployment's of the same name."""
    visible = FlowVersion.objects.visible_to([workspace_id])
    name, _, number = named.partition("@")
    versions = visible.filter(flow__name=name)
    if number.isdecimal() and len(number) < 10:
        versions = versions.filter(number=int(number))
    else:
        versions = versions.usable() if not number else versions.none()
    found = visible.filter(pk=named).first()
    found = found or versions.filter(flow__workspace_id=workspace_id).order_by("-number").first()
    found = found or versions.filter(flow__workspace__isnull=True).order_by("-number").first()
    if found is None:
        known = ", ".join(sorted(set(visible.usable().values_list("flow__name", flat=True)))[:FLOWS_NAMED])
        raise NotVisible(
            f"There is no flow {named!r} for this workspace; there are {known or 'none'}.",
            code="flow_unknown",
            pointer="/flow",
        )
    return found.pk
