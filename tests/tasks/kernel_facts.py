"""Builders for tests of the kernel: a running task, what is seen of it, and a moment."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sandbox_providers.contract import Endpoint, Observation, State
from sandbox_supervisor.protocol.messages import DeliveryProof, Failure, Head, Heartbeat
from sandbox_supervisor.protocol.states import FailureClass, GraphState, NodeState
from tasks_app.kernel import Fence, FrozenLimits, Seen, TaskFacts, decide
from tasks_app.states import Health, Presence, SecretState, Status

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=30)
SPECIFICATION = "sha256:" + "5" * 64
ENDPOINT = Endpoint(host="127.0.0.1", port=4711, fingerprint="f" * 64)
LIMITS = FrozenLimits(
    grace=timedelta(minutes=5),
    start_deadline=timedelta(minutes=10),
    rerun_patience=timedelta(hours=1),
    archive_patience=timedelta(hours=2),
)
HEARD = Fence(instance="boot:1:2", epoch="e1", boot=1, round=1, beat=7)

PENDING = TaskFacts(status=Status.PENDING, specification=SPECIFICATION)
CREATING = replace(
    PENDING,
    status=Status.PROVISIONING,
    presence=Presence.CREATING,
    secret=SecretState.PRESENT,
    provisioning_at=NOW - timedelta(seconds=5),
)
STARTING = replace(CREATING, presence=Presence.PRESENT, instance="boot:1:2", endpoint=ENDPOINT)
RUNNING = replace(
    STARTING, status=Status.RUNNING, health=Health.REACHABLE, heard=HEARD, last_contact_at=NOW - timedelta(seconds=5)
)
ENDED = replace(
    RUNNING,
    status=Status.COMPLETED,
    secret=SecretState.WITHDRAWN,
    first_terminal_at=NOW - timedelta(hours=1),
    retain_until=NOW + timedelta(days=3),
)


def beat(**changes: Any) -> Heartbeat:
    """Make the next heartbeat of the running task."""
    plain = Heartbeat(
        instance="boot:1:2",
        epoch="e1",
        boot=1,
        round=1,
        beat=8,
        head=Head(seq=100, chain="c" * 64),
        graph=GraphState.RUNNING,
        ready=True,
        specification=SPECIFICATION,
    )
    return replace(plain, **changes)


def failure(code: str, message: str = "It broke.", **facts: Any) -> Failure:
    return Failure(failure_class=FailureClass.CHECK_FAILED, code=code, message=message, facts=facts)


def claim(state: NodeState = NodeState.SUCCEEDED, **changes: Any) -> DeliveryProof:
    return replace(DeliveryProof(node="deliver", generation=1, state=state, commit="c" * 40), **changes)


def sight(state: State, **changes: Any) -> Observation:
    """Make an authoritative observation of the bound instance."""
    plain = Observation(state=state, instance="boot:1:2", endpoint=ENDPOINT, authoritative=True)
    return replace(plain, **changes)


def verdict(task: TaskFacts, *, now: datetime = NOW, limits: FrozenLimits = LIMITS, **seen: Any) -> Any:
    return decide(task, Seen(**{"epochs_agree": True} | seen), now, limits)
