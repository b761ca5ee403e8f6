"""Put together what a task freezes: capabilities, policy, the specification and their digests."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings

from policy_app.models import PolicyRevision
from policy_app.states import PermissionPolicy
from policy_app.values import PolicyValues
from registry_app.models import FlowVersion
from registry_app.resolution import Resolution
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Flow, Node, NodeKind, Permissions
from sandbox_supervisor.protocol.spec import ControlPlane, Limits, Repository, TaskInfo, TaskSpecification
from tasks_app.kernel import BEAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What is chosen for one task alone."""

    task_id: str
    sandbox_name: str
    nonce: str


def needs_delivery(flow: Flow) -> bool:
    return any(node.kind is NodeKind.DELIVERY for node in flow.all_nodes())


def frozen_capabilities(resolution: Resolution, version: FlowVersion, policy: PolicyRevision) -> list[dict[str, Any]]:
    """List everything that was pinned, in a fixed order: the ground of the capability digest."""
    listed = [codec.plain(capability) for capability in resolution.capabilities]
    listed.append(
        {"kind": "flow", "reference": version.flow.name, "version": str(version.number), "digest": version.digest}
    )
    listed.append({"kind": "policy", "reference": "runtime", "version": str(policy.number), "digest": ""})
    return sorted(listed, key=lambda entry: (entry["kind"], entry["reference"]))


def policy_copy(values: PolicyValues) -> dict[str, Any]:
    """Give the revision's values as plain JSON: seconds, bytes, cores as text."""
    return {name: _plain(value) for name, value in asdict(values).items()}


def _plain(value: object) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def specification(
    *,
    identity: Identity,
    info: Mapping[str, str],
    repository: Repository,
    flow: Flow,
    inputs: dict[str, Any],
    resolution: Resolution,
    policy: PolicyValues,
) -> bytes:
    """Give the canonical bytes of the specification; they hold no secret."""
    return codec.canonical(
        TaskSpecification(
            task=TaskInfo(id=identity.task_id, **info),
            repository=repository,
            flow=_asking(flow) if policy.permission_policy is PermissionPolicy.ASK else flow,
            nonce=identity.nonce,
            control=ControlPlane(
                url="http://control",
                socket=str(settings.CONTROL_SOCKET),
                heartbeat_interval=BEAT.total_seconds(),
            ),
            inputs=inputs,
            drivers=dict(resolution.drivers),
            limits=Limits(
                max_parallel_attempts=policy.max_parallel_attempts,
                memory=policy.memory_limit,
                cpu=float(policy.cpu_limit),
                artefact_quota=policy.artefact_quota,
                rerun_patience=policy.rerun_patience.total_seconds(),
            ),
        )
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
