"""Find and check everything a task depends on. No row, no sandbox; remotes and registry are only read."""

import secrets
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from policy_app.models import PolicyRevision
from policy_app.services.publish import current_revision
from registry_app.models import FlowVersion
from registry_app.resolution import capability_digest, resolve
from sandbox_providers.contract import ProviderCapabilities, ProviderError
from sandbox_supervisor.protocol.flow import Flow
from sandbox_supervisor.protocol.spec import Repository as FrozenRepository
from tasks_app.errors import BaselineRefused, CapabilityGap, NotVisible, Unavailable
from tasks_app.models import Task
from tasks_app.remotes import Remote
from tasks_app.services.creation import baseline, freeze
from tasks_app.services.creation.dirty import uncommitted
from tasks_app.services.creation.request import TaskRequest, check_texts, complete_inputs
from tasks_app.services.providers import image_in_use, provider_named
from tasks_app.services.tokens import pepper_in_use
from workspaces_app import ids
from workspaces_app.access import Actor, Permission, authorise
from workspaces_app.models import Repository, User

NONCE_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A task that could be inserted: its columns, and what its creator should be told."""

    columns: dict[str, Any]
    warnings: tuple[str, ...]
    live_task_quota: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the request refers to."""

    actor: Actor
    creator: User
    repository: Repository
    version: FlowVersion
    flow: Flow
    policy: PolicyRevision


def prepare(actor: Actor, request: TaskRequest) -> Prepared:
    """Check a request and freeze what it depends on.

    Raises NotVisible, Forbidden, Refused (texts, inputs), CapabilityGap with all gaps at once, BaselineRefused, and
    Unavailable for a remote that does not answer within 20 s.
    """
    authorise(actor, Permission.CREATE_TASK, request.workspace_id)
    found = _find(actor, request)
    title, inputs = check_texts(request), complete_inputs(found.flow, request.inputs)
    resolution = resolve(found.version, workspace_id=request.workspace_id)
    capabilities, gaps = _provider(found.policy)
    _refuse_gaps([asdict(gap) for gap in resolution.gaps] + gaps)
    identity = _identity()
    branch = request.task_branch or baseline.made_up_branch(title, identity.task_id)
    remote = baseline.open_for(found.repository.clone_url, found.repository.workspace)
    start = baseline.resolve_baseline(remote, found.repository, request.base)
    _check_branch(found.repository, remote, branch)
    listed = freeze.frozen_capabilities(resolution, found.version, found.policy)
    values = found.policy.values
    specification = freeze.specification(
        identity=identity,
        info=_info(found, request, title),
        repository=FrozenRepository(
            slug=found.repository.slug,
            clone_url=found.repository.clone_url,
            base_commit=start.commit,
            base_ref=start.ref,
            task_branch=branch,
        ),
        flow=found.flow,
        inputs=inputs,
        resolution=resolution,
        policy=values,
    )
    columns = (
        _columns(found, request, identity)
        | _provider_columns(found.policy, capabilities)
        | {
            "title": title,
            "inputs": inputs,
            "base_commit": start.commit,
            "base_ref": start.ref,
            "task_branch": branch,
            "capabilities": listed,
            "capability_digest": capability_digest(
                resolution,
                flow_digest=found.version.digest,
                policy={"revision": found.policy.number, **freeze.policy_copy(values)},
            ),
            "specification": specification,
            "specification_digest": f"sha256:{sha256(specification).hexdigest()}",
        }
    )
    return Prepared(columns=columns, warnings=_warnings(remote), live_task_quota=values.live_task_quota)


def _find(actor: Actor, request: TaskRequest) -> _Found:
    repository = (
        Repository.objects.select_related("workspace")
        .filter(pk=request.repository_id, workspace_id=request.workspace_id)
        .first()
    )
    versions = FlowVersion.objects.visible_to([request.workspace_id]).select_related("flow")
    version = versions.filter(pk=request.flow_version_id).first()
    creator = User.objects.filter(pk=actor.user_id or 0).first()
    if repository is None or version is None or creator is None:
        missing = "repository" if repository is None else "flow version"
        raise NotVisible(f"There is no such {missing}.", pointer=f"/{missing.replace(' ', '_')}")
    return _Found(
        actor=actor,
        creator=creator,
        repository=repository,
        version=version,
        flow=version.compiled,
        policy=current_revision(),
    )


def _provider(policy: PolicyRevision) -> tuple[ProviderCapabilities | None, list[dict[str, Any]]]:
    gap = partial(_gap, "provider", policy.provider)
    try:
        capabilities = provider_named(policy.provider).capabilities()
    except ProviderError as error:
        return None, [gap(error.message, "Install the provider, or publish a policy revision that names another one.")]
    if not (policy.runner_image or capabilities.image_digest or image_in_use()):
        return capabilities, [gap("There is no sandbox image.", "`./caisson up` builds it.")]
    return capabilities, []


def _gap(kind: str, reference: str, reason: str, hint: str) -> dict[str, Any]:
    return {"kind": kind, "reference": reference, "wanted_by": [], "reason": reason, "hint": hint}


def _refuse_gaps(gaps: list[dict[str, Any]]) -> None:
    if not gaps:
        return
    named = ", ".join(f"{gap['kind']} {gap['reference']}" for gap in gaps)
    raise CapabilityGap(f"This cannot run here yet: {named}.", gaps=gaps)


def _identity() -> freeze.Identity:
    task_id = ids.new_id("tsk")
    return freeze.Identity(
        task_id=task_id,
        sandbox_name=f"cs-{task_id.removeprefix('tsk_')}-{secrets.token_hex(4)}",
        nonce=secrets.token_hex(NONCE_BYTES),
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


def _info(found: _Found, request: TaskRequest, title: str) -> dict[str, str]:
    return {
        "title": title,
        "brief": request.brief,
        "creator": found.creator.get_username(),
        "workspace": found.repository.workspace.slug,
    }


def _columns(found: _Found, request: TaskRequest, identity: freeze.Identity) -> dict[str, Any]:
    values = found.policy.values
    return {
        "id": identity.task_id,
        "workspace_id": request.workspace_id,
        "creator": found.creator,
        "brief": request.brief,
        "repository": found.repository,
        "clone_url": found.repository.clone_url,
        "push_url": found.repository.remote,
        "flow_version": found.version,
        "requires_delivery": freeze.needs_delivery(found.flow),
        "policy_revision": found.policy,
        "policy": freeze.policy_copy(values),
        "cpu_request": values.cpu_request,
        "cpu_limit": values.cpu_limit,
        "memory_request": values.memory_request,
        "memory_limit": values.memory_limit,
        "max_retention": values.max_retention,
        "connection_grace": values.connection_grace,
        "start_deadline": values.start_deadline,
        "rerun_patience": values.rerun_patience,
        "archive_patience": values.archive_patience,
        "sandbox_name": identity.sandbox_name,
        "nonce": identity.nonce,
        "token_key_id": pepper_in_use(),
    }


def _provider_columns(policy: PolicyRevision, capabilities: ProviderCapabilities | None) -> dict[str, Any]:
    if capabilities is None:
        raise Unavailable("The provider's capabilities are not known.", code="provider_unavailable")
    image = policy.runner_image or capabilities.image_digest or image_in_use()
    return {
        "provider": policy.provider,
        "provider_version": capabilities.version,
        "template_reference": policy.template_reference,
        "runner_image": capabilities.image_reference or policy.runner_image,
        "image_digest": image,
        "isolation": capabilities.isolation[:100],
    }
