"""Decide whether a delivery request may be taken at all, from the frozen task alone: nothing is contacted."""

from sandbox_supervisor.protocol import git_rules
from sandbox_supervisor.protocol.flow import NodeKind
from sandbox_supervisor.protocol.messages import DeliveryRequest
from tasks_app.errors import Refused
from tasks_app.models import Task
from tasks_app.services.delivery import limits


def check_request(task: Task, request: DeliveryRequest) -> None:
    """Raise Refused unless the request is one that the frozen flow of this very task can make."""
    if request.key != f"{task.pk}:{request.node}:{request.generation}:push":
        raise Refused("The key of the delivery does not name this task, node and generation.", code="delivery_key")
    if request.node not in delivery_nodes(task):
        raise Refused(f"The frozen flow has no delivery node {request.node[:63]!r}.", code="not_a_delivery_node")
    if request.generation < 1 or request.round < 1:
        raise Refused("Generation and round count from 1.", code="delivery_malformed")
    if request.base_commit != task.base_commit:
        raise Refused("The delivery starts from another commit than the frozen baseline.", code="baseline_differs")
    if not git_rules.valid_commit(request.commit) or len(request.commit) != len(task.base_commit):
        raise Refused("The commit to deliver is no full commit id.", code="commit_malformed")
    if not git_rules.valid_branch(task.task_branch):
        raise Refused("The frozen task branch has a name that may not be used.", code="branch_malformed")
    if request.commit != request.base_commit:
        _check_bundle(request)


def _check_bundle(request: DeliveryRequest) -> None:
    if not git_rules.valid_digest(request.bundle_digest or ""):
        raise Refused("The bundle needs its digest, sha256:<64 hexadecimal digits>.", code="digest_malformed")
    if not 0 < request.bundle_size <= limits.BUNDLE_LIMIT:
        raise Refused(
            f"The bundle has {request.bundle_size} bytes; at most {limits.BUNDLE_LIMIT} are allowed.",
            code="bundle_too_big",
            limit=limits.BUNDLE_LIMIT,
        )


def delivery_nodes(task: Task) -> frozenset[str]:
    """Give the keys of the delivery nodes of the task's frozen flow."""
    nodes = task.flow_version.compiled.all_nodes()
    return frozenset(node.key for node in nodes if node.kind is NodeKind.DELIVERY)
