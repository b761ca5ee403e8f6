"""Find what a request refers to, and every capability that is missing, all at once."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from policy_app.models import PolicyRevision
from policy_app.services.publish import current_revision
from registry_app.models import FlowVersion
from registry_app.resolution import Resolution, resolve, vanished
from sandbox_providers.contract import ProviderCapabilities, ProviderError
from sandbox_supervisor.protocol.flow import Flow
from tasks_app.errors import CapabilityGap, NotVisible
from tasks_app.models import Task
from tasks_app.services.creation.request import TaskRequest
from tasks_app.services.providers import image_in_use, provider_named
from workspaces_app.access import Actor
from workspaces_app.models import Repository, User


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """What the request names."""

    creator: User
    repository: Repository
    version: FlowVersion
    flow: Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the task will run with: pinned, and without a gap."""

    policy: PolicyRevision
    resolution: Resolution
    provider: ProviderCapabilities
    image: str


def find_references(actor: Actor, request: TaskRequest) -> References:
    """Look up repository, flow version and creator. Raises NotVisible."""
    repositories = Repository.objects.select_related("workspace").filter(workspace_id=request.workspace_id)
    versions = FlowVersion.objects.visible_to([request.workspace_id]).select_related("flow")
    repository = repositories.filter(pk=request.repository_id).first()
    version = versions.filter(pk=request.flow_version_id).first()
    creator = User.objects.filter(pk=actor.user_id or 0).first()
    if repository is None:
        raise NotVisible("There is no such repository.", pointer="/repository")
    if version is None:
        raise NotVisible("There is no such flow version.", pointer="/flow_version")
    if creator is None:
        raise NotVisible("There is no such member.")
    return References(creator=creator, repository=repository, version=version, flow=version.compiled)


def find_capabilities(references: References, request: TaskRequest) -> Capabilities:
    """Pin everything that the flow, the policy and the provider have to offer. Raises CapabilityGap with all gaps."""
    policy = current_revision()
    resolution = resolve(references.version, workspace_id=request.workspace_id)
    provider, provider_gaps = _provider(policy)
    gaps = [asdict(gap) for gap in resolution.gaps] + provider_gaps
    if gaps or provider is None:
        named = ", ".join(f"{gap['kind']} {gap['reference']}" for gap in gaps)
        raise CapabilityGap(f"This cannot run here yet: {named}.", gaps=gaps)
    return Capabilities(policy=policy, resolution=resolution, provider=provider, image=_image(policy, provider))


def lost_capabilities(task: Task) -> str:
    """Say what ``task`` has frozen and a new sandbox can no longer have; empty when everything is still there."""
    reasons = [gap.reason for gap in vanished(task.flow_version, task.capabilities)]
    try:
        provider_named(task.provider)
    except ProviderError as error:
        reasons.append(error.message)
    return " ".join(reasons)


def _provider(policy: PolicyRevision) -> tuple[ProviderCapabilities | None, list[dict[str, Any]]]:
    gap = partial(_gap, policy.provider)
    try:
        provider = provider_named(policy.provider).capabilities()
    except ProviderError as error:
        return None, [gap(error.message, "Install the provider, or publish a policy revision that names another one.")]
    if not _image(policy, provider):
        return provider, [gap("There is no sandbox image.", "`./caisson up` builds it.")]
    return provider, []


def _gap(reference: str, reason: str, hint: str) -> dict[str, Any]:
    return {"kind": "provider", "reference": reference, "wanted_by": [], "reason": reason, "hint": hint}


def _image(policy: PolicyRevision, provider: ProviderCapabilities) -> str:
    return policy.runner_image or provider.image_digest or image_in_use()
