"""Put together what a task freezes: its columns, its specification and their digests."""

from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any

from django.conf import settings

from policy_app.states import PermissionPolicy
from policy_app.values import PolicyValues
from registry_app.resolution import capability_digest
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Flow, Node, NodeKind, Permissions
from sandbox_supervisor.protocol.spec import ControlPlane, Limits, Repository, TaskInfo, TaskSpecification
from tasks_app.kernel import BEAT
from tasks_app.models.task import COPIED
from tasks_app.services.creation.baseline import Baseline
from tasks_app.services.creation.find import Capabilities, References
from tasks_app.services.tokens import pepper_in_use


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What is chosen or checked for this one task."""

    task_id: str
    sandbox_name: str
    nonce: str
    title: str
    brief: str
    inputs: dict[str, Any]
    branch: str
    start: Baseline


def columns(references: References, capabilities: Capabilities, choices: Choices) -> dict[str, Any]:
    """Give every column of the new row but the moment of its creation."""
    repository = references.repository
    specification = _specification(references, capabilities, choices)
    return {
        "id": choices.task_id,
        "workspace_id": repository.workspace_id,
        "creator": references.creator,
        "title": choices.title,
        "brief": choices.brief,
        "repository": repository,
        "clone_url": repository.clone_url,
        "push_url": repository.remote,
        "base_commit": choices.start.commit,
        "base_ref": choices.start.ref,
        "task_branch": choices.branch,
        "flow_version": references.version,
        "inputs": choices.inputs,
        "requires_delivery": any(node.kind is NodeKind.DELIVERY for node in references.flow.all_nodes()),
        "sandbox_name": choices.sandbox_name,
        "nonce": choices.nonce,
        "token_key_id": pepper_in_use(),
        "specification": specification,
        "specification_digest": f"sha256:{sha256(specification).hexdigest()}",
        **_capability_columns(references, capabilities),
    }


def _capability_columns(references: References, capabilities: Capabilities) -> dict[str, Any]:
    policy, values, provider = capabilities.policy, capabilities.policy.values, capabilities.provider
    copy = _plain(values)
    return {
        "capabilities": _listed(references, capabilities),
        "capability_digest": capability_digest(
            capabilities.resolution,
            flow_digest=references.version.digest,
            policy={"revision": policy.number, **copy},
        ),
        "policy_revision": policy,
        "policy": copy,
        "provider": policy.provider,
        "provider_version": provider.version,
        "image_digest": capabilities.image,
        "runner_image": provider.image_reference or policy.runner_image,
        "isolation": provider.isolation[:100],
        **{name: getattr(values, name) for name in COPIED},
    }


def _listed(references: References, capabilities: Capabilities) -> list[dict[str, Any]]:
    """List everything that was pinned, in a fixed order."""
    version, policy = references.version, capabilities.policy
    listed = [codec.plain(capability) for capability in capabilities.resolution.capabilities]
    listed.append(_entry("flow", version.flow.name, version.number, version.digest))
    listed.append(_entry("policy", "runtime", policy.number, ""))
    return sorted(listed, key=lambda entry: (entry["kind"], entry["reference"]))


def _entry(kind: str, reference: str, number: int, digest: str) -> dict[str, Any]:
    return {"kind": kind, "reference": reference, "version": str(number), "digest": digest}


def _plain(values: PolicyValues) -> dict[str, Any]:
    """Give the revision's values as plain JSON: seconds, bytes, cores as text."""
    return {name: _plain_value(value) for name, value in asdict(values).items()}


def _plain_value(value: object) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _specification(references: References, capabilities: Capabilities, choices: Choices) -> bytes:
    """Give the canonical bytes of the specification; they hold no secret."""
    repository, policy = references.repository, capabilities.policy.values
    asks = policy.permission_policy is PermissionPolicy.ASK
    specification = TaskSpecification(
        task=TaskInfo(
            id=choices.task_id,
            title=choices.title,
            brief=choices.brief,
            creator=references.creator.get_username(),
            workspace=repository.workspace.slug,
        ),
        repository=Repository(
            slug=repository.slug,
            clone_url=repository.clone_url,
            base_commit=choices.start.commit,
            base_ref=choices.start.ref,
            task_branch=choices.branch,
        ),
        flow=_asking(references.flow) if asks else references.flow,
        nonce=choices.nonce,
        control=ControlPlane(
            url="http://control", socket=str(settings.CONTROL_SOCKET), heartbeat_interval=BEAT.total_seconds()
        ),
        inputs=choices.inputs,
        drivers=dict(capabilities.resolution.drivers),
        limits=_limits(policy),
    )
    return codec.canonical(specification)


def _limits(policy: PolicyValues) -> Limits:
    return Limits(
        max_parallel_attempts=policy.max_parallel_attempts,
        memory=policy.memory_limit,
        cpu=float(policy.cpu_limit),
        artefact_quota=policy.artefact_quota,
        rerun_patience=policy.rerun_patience.total_seconds(),
    )


def _asking(flow: Flow) -> Flow:
    """Give the flow with every permission request put to a person."""
    return replace(
        flow,
        nodes=tuple(_node_asking(node) for node in flow.nodes),
        finally_=tuple(_node_asking(node) for node in flow.finally_),
    )


def _node_asking(node: Node) -> Node:
    agent = replace(node.agent, permissions=Permissions.ASK) if node.agent else None
    merge = node.merge
    if merge is not None and merge.agent is not None:
        merge = replace(merge, agent=replace(merge.agent, permissions=Permissions.ASK))
    return replace(node, agent=agent, merge=merge)
