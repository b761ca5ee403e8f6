"""Whether a failed attempt is tried again, and when."""

from hashlib import blake2b

from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.moves import move_node
from sandbox_supervisor.graph.rows import AttemptRow, NodeRow
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.flow import Retry
from sandbox_supervisor.protocol.messages import Failure
from sandbox_supervisor.protocol.states import FailureClass, NodeState

CAP = 100  # times the first back-off
LONGEST_WISH = 3600.0  # seconds that a rate limit may ask for


def may_retry(retry: Retry, row: NodeRow, failure: Failure) -> bool:
    """Say whether the budget of the failure's class has another try. ``infra`` has a budget of its own."""
    if failure.failure_class is FailureClass.INFRA:
        return row.infra_retries < retry.infra_limit
    return failure.failure_class in retry.on and row.retries < retry.limit


def jitter(task: str, node: str, generation: int, n: int) -> float:
    """Give a factor in [0.75, 1.25) that depends on nothing but the attempt."""
    seed = blake2b(f"{task}\0{node}\0{generation}\0{n}".encode(), digest_size=8).digest()
    return 0.75 + int.from_bytes(seed, "big") / 2**65


def delay(retry: Retry, used: int, factor: float, retry_after: float | None) -> float:
    """Give the seconds until the next try, when ``used`` of this class came before. A rate limit may ask for longer."""
    wait = retry.backoff * min(2.0 ** min(used, 60), CAP) * factor
    if retry_after is not None and retry_after > wait:  # false for NaN
        return min(retry_after, max(wait, LONGEST_WISH))
    return wait


def schedule(d: Draft, attempt: AttemptRow, failure: Failure, retry_after: float | None) -> None:
    """Put the node back to ready, not to be dispatched before its back-off has passed."""
    key = attempt.id.node
    row = d.node(key)
    infra = failure.failure_class is FailureClass.INFRA
    used = row.infra_retries if infra else row.retries
    factor = jitter(d.graph.task, key, attempt.id.generation, attempt.id.n)
    wait = delay(d.spec(key).retry, used, factor, retry_after)
    if infra:
        move_node(d, key, NodeState.READY, reason="retry", infra_retries=used + 1)
    else:
        move_node(d, key, NodeState.READY, reason="retry", retries=used + 1)
    d.set_timer("retry", key, wait)
    told = {"failure_class": failure.failure_class, "next_n": attempt.id.n + 1, "not_before_in": round(wait, 3)}
    d.event(EventKind.ATTEMPT_RETRY, told, node=key, attempt=str(attempt.id))
