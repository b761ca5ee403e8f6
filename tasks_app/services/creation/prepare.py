"""Check a request and freeze what the task depends on. No row, no sandbox; remotes and registry are only read."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks_app.errors import BaselineRefused
from tasks_app.models import Task
from tasks_app.remotes import Remote
from tasks_app.services.creation import baseline
from tasks_app.services.creation.dirty import uncommitted
from tasks_app.services.creation.find import find_capabilities, find_references
from tasks_app.services.creation.freeze import Choices, columns
from tasks_app.services.creation.request import TaskRequest, check_texts, complete_inputs
from workspaces_app import ids
from workspaces_app.access import Actor, Permission, authorise
from workspaces_app.models import Repository

NONCE_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A task that could be inserted: its columns, and what its creator should be told."""

    columns: dict[str, Any]
    warnings: tuple[str, ...]
    live_task_quota: int


def prepare(actor: Actor, request: TaskRequest) -> Prepared:
    """Check a request and freeze what it depends on.

    Raises NotVisible, Forbidden, Refused (texts, inputs), CapabilityGap with all gaps at once, BaselineRefused, and
    Unavailable for a remote that does not answer within 20 s.
    """
    authorise(actor, Permission.CREATE_TASK, request.workspace_id)
    references = find_references(actor, request)
    title, inputs = check_texts(request), complete_inputs(references.flow, request.inputs)
    capabilities = find_capabilities(references, request)
    task_id = ids.new_id("tsk")
    branch = request.task_branch or baseline.made_up_branch(title, task_id)
    repository = references.repository
    remote = baseline.open_for(repository.clone_url, repository.workspace)
    start = baseline.resolve_baseline(remote, repository, request.base)
    _check_branch(repository, remote, branch)
    choices = Choices(
        task_id=task_id,
        sandbox_name=f"cs-{task_id.removeprefix('tsk_')}-{secrets.token_hex(4)}",
        nonce=secrets.token_hex(NONCE_BYTES),
        title=title,
        brief=request.brief,
        inputs=inputs,
        branch=branch,
        start=start,
    )
    return Prepared(
        columns=columns(references, capabilities, choices),
        warnings=_warnings(remote),
        live_task_quota=capabilities.policy.live_task_quota,
    )


def _check_branch(repository: Repository, remote: Remote, branch: str) -> None:
    """Ask the remote that is pushed to, and the tasks that are there."""
    target = remote if not repository.push_url else baseline.open_for(repository.push_url, repository.workspace)
    baseline.check_branch(target, branch)
    if Task.objects.holding_branch(repository.remote, branch).exists():
        raise BaselineRefused(f"Another task has the branch {branch}.", code="branch_taken", pointer="/task_branch")


def _warnings(remote: Remote) -> tuple[str, ...]:
    if not remote.url.is_local:
        return ()
    sentence = uncommitted(Path(remote.url.path))
    return (sentence,) if sentence else ()
