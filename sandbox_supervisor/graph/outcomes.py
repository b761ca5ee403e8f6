"""What an attempt's end means for its row and its node: cancel wins, then supersession, time-outs, retries."""

from sandbox_supervisor.graph import conditions, retry, rework
from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.facts import Succeeded
from sandbox_supervisor.graph.moves import end_attempt, end_node, reset_node
from sandbox_supervisor.graph.rows import AttemptRow
from sandbox_supervisor.graph.settle import wrong_condition
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.flow import NodeKind
from sandbox_supervisor.protocol.messages import CancelMode, Failure
from sandbox_supervisor.protocol.states import AttemptState, FailureClass, GraphState, NodeState

TIMEOUTS = {
    "timeout": ("attempt_timeout", "The attempt took longer than its time-out allows."),
    "node_timeout": ("node_timeout", "The node's attempts together took longer than its time-out allows."),
}


def is_being_cancelled(d: Draft, key: str) -> bool:
    """Say whether the graph's cancel covers this node; ``finally`` nodes are spared unless the graph is killed."""
    if d.graph.state is not GraphState.CANCELLING:
        return False
    return key not in d.topology.finals or d.graph.cancel_mode == CancelMode.KILL


# --- success ---------------------------------------------------------------------------------------------------------


def succeeded(d: Draft, row: AttemptRow, fact: Succeeded) -> None:
    """Store a success; a wish to stop that was committed before it wins."""
    if row.cancel_reason is not None:
        stopped(d, row, fact.result_commit)
        return
    key = row.id.node
    artefacts = tuple(fact.artefacts)
    _keep_artefacts(d, row, fact)
    d.set_attempt(row.id, result=fact.result, artefacts=artefacts)
    end_attempt(d, str(row.id), AttemptState.SUCCEEDED, result_commit=fact.result_commit)
    if is_being_cancelled(d, key) or not _asks_rework(d, row, fact):
        end_node(
            d,
            key,
            NodeState.SUCCEEDED,
            winner=str(row.id),
            result=fact.result,
            result_commit=fact.result_commit,
            output_digest=fact.output_digest,
        )


def _keep_artefacts(d: Draft, row: AttemptRow, fact: Succeeded) -> None:
    known = {item.get("digest") for other in d.state.attempts.values() for item in other.artefacts}
    for item in fact.artefacts:
        d.event(EventKind.ARTEFACT_STORED, item, node=row.id.node, attempt=str(row.id))
        if item.get("digest") not in known:
            known.add(item.get("digest"))
            d.want(
                EffectKind.UPLOAD, str(item.get("digest")), data={"name": item.get("name"), "attempt_of": str(row.id)}
            )


def _asks_rework(d: Draft, row: AttemptRow, fact: Succeeded) -> bool:
    """Carry out the node's own wish for rework. True when the node is dealt with."""
    spec = d.spec(row.id.node)
    if spec.rework is None:
        return False
    asked = conditions.judge(spec.rework.when, lambda reference: _own(fact.result, reference))
    if asked.problem:
        end_node(d, spec.key, NodeState.FAILED, failure=wrong_condition(asked), result=fact.result)
    elif asked.holds:
        rework.ask(d, spec.key, fact.result)
    return bool(asked.problem) or asked.holds


def _own(result: object, reference: str) -> object:
    head, _, rest = reference.partition(".")
    return conditions.dig(result, rest.split(".")) if head == "result" else conditions.MISSING


# --- everything else -------------------------------------------------------------------------------------------------


def stopped(d: Draft, row: AttemptRow, wip_commit: str | None) -> None:
    """End an attempt that was told to stop, by the reason it was told."""
    timeout = TIMEOUTS.get(row.cancel_reason or "")
    failure = None
    if timeout:
        failure = Failure(failure_class=FailureClass.TIMEOUT, code=timeout[0], message=timeout[1])
    state = AttemptState.TIMED_OUT if timeout else AttemptState.CANCELLED
    end_attempt(d, str(row.id), state, wip_commit=wip_commit or row.wip_commit, failure=failure)
    after_stop(d, row, failure)


def after_stop(d: Draft, row: AttemptRow, failure: Failure | None) -> None:
    """Say what becomes of the node of an attempt that was told to stop. ``failure`` is set after a time-out."""
    key = row.id.node
    if is_being_cancelled(d, key):
        end_node(d, key, NodeState.CANCELLED, reason="cancelled")
    elif d.node(key).superseded:
        reset_node(d, key)
    elif failure is None:
        end_node(d, key, NodeState.CANCELLED, reason=row.cancel_reason)
    elif row.cancel_reason == "timeout" and retry.may_retry(d.spec(key).retry, d.node(key), failure):
        retry.schedule(d, row, failure, None)
    else:
        end_node(d, key, NodeState.FAILED, failure=failure)


def failed(
    d: Draft,
    row: AttemptRow,
    state: AttemptState,
    failure: Failure,
    *,
    wip_commit: str | None = None,
    retry_after: float | None = None,
) -> None:
    """Store a failure or an interruption, and try again if the budget of its class allows."""
    if row.cancel_reason is not None:
        stopped(d, row, wip_commit)
        return
    key = row.id.node
    end_attempt(d, str(row.id), state, failure=failure, wip_commit=wip_commit)
    if is_being_cancelled(d, key) and state is AttemptState.INTERRUPTED:
        end_node(d, key, NodeState.CANCELLED, reason="cancelled")
    elif is_being_cancelled(d, key) or not _may_retry(d, key, failure):
        end_node(d, key, NodeState.FAILED, failure=failure)
    else:
        retry.schedule(d, row, failure, retry_after)


def _may_retry(d: Draft, key: str, failure: Failure) -> bool:
    spec = d.spec(key)
    asked = spec.kind is NodeKind.APPROVAL and failure.failure_class is not FailureClass.INFRA
    return not asked and retry.may_retry(spec.retry, d.node(key), failure)
