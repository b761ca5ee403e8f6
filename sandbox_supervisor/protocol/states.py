"""The words for graph, node, attempt and request states, shared by supervisor, API and console."""

from enum import StrEnum


class GraphState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class NodeState(StrEnum):
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    NEEDS_INPUT = "needs_input"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"  # its own condition was false
    UNREACHABLE = "unreachable"  # its join can no longer hold
    CANCELLED = "cancelled"
    STALE = "stale"  # succeeded on inputs that have since been replaced


class AttemptState(StrEnum):
    QUEUED = "queued"
    PROVISIONING = "provisioning"
    STARTING = "starting"
    RUNNING = "running"
    NEEDS_INPUT = "needs_input"
    FINISHING = "finishing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class RequestState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    DECLINED = "declined"
    EXPIRED = "expired"
    ORPHANED = "orphaned"  # its attempt ended before anybody answered
    CANCELLED = "cancelled"


class RequestKind(StrEnum):
    QUESTION = "question"
    PERMISSION = "permission"
    APPROVAL = "approval"


class FailureClass(StrEnum):
    INFRA = "infra"
    RATE_LIMITED = "rate_limited"
    AGENT_ERROR = "agent_error"
    CHECK_FAILED = "check_failed"
    TIMEOUT = "timeout"
    WORKSPACE = "workspace"
    PROTOCOL = "protocol"
    BUDGET = "budget"


GRAPH_ENDED = frozenset({GraphState.SUCCEEDED, GraphState.FAILED, GraphState.CANCELLED})
NODE_ENDED = frozenset(
    {NodeState.SUCCEEDED, NodeState.FAILED, NodeState.SKIPPED, NodeState.UNREACHABLE, NodeState.CANCELLED}
)
ATTEMPT_ENDED = frozenset(
    {
        AttemptState.SUCCEEDED,
        AttemptState.FAILED,
        AttemptState.TIMED_OUT,
        AttemptState.CANCELLED,
        AttemptState.INTERRUPTED,
    }
)

NODE_LETTERS = {
    NodeState.WAITING: "w",
    NodeState.READY: "y",
    NodeState.RUNNING: "r",
    NodeState.NEEDS_INPUT: "i",
    NodeState.SUCCEEDED: "s",
    NodeState.FAILED: "f",
    NodeState.SKIPPED: "k",
    NodeState.UNREACHABLE: "u",
    NodeState.CANCELLED: "c",
    NodeState.STALE: "t",
}  # the bar of a heartbeat: one letter per node, in definition order
