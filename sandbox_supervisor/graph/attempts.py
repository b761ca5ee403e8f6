"""Facts about live attempts. A fact about an attempt that has ended changes nothing and is recorded as late."""

from dataclasses import replace
from math import isfinite

from sandbox_supervisor.graph import approvals, clocks, outcomes
from sandbox_supervisor.graph.draft import Draft, is_live
from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.facts import (
    Ended,
    Failed,
    Finishing,
    Interrupted,
    Prepared,
    Progress,
    Spawned,
    Succeeded,
)
from sandbox_supervisor.graph.moves import move_attempt
from sandbox_supervisor.graph.rows import AttemptId, AttemptRow
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.flow import NodeKind
from sandbox_supervisor.protocol.messages import Failure, OutcomeCode
from sandbox_supervisor.protocol.states import AttemptState, FailureClass


def known(d: Draft, attempt: AttemptId, what: str) -> AttemptRow | None:
    """Give the attempt's row if it is live; record the fact as late if it has ended. Raises Refusal for a stranger."""
    row = d.state.attempts.get(str(attempt))
    if row is None:
        facts = {"attempt": str(attempt)}
        raise Refusal("unknown_attempt", f"There is no attempt {attempt}.", facts, outcome=OutcomeCode.UNKNOWN)
    if is_live(row):
        return row
    d.event(EventKind.ATTEMPT_LATE, {"what": what}, node=row.id.node, attempt=str(row.id))
    return None


def prepared(d: Draft, fact: Prepared) -> None:
    """The base is known: go on with what the node's kind needs next."""
    row = known(d, fact.attempt, "prepared")
    if row is None:
        return
    attempt = str(row.id)
    d.done(f"{EffectKind.PREPARE}:{attempt}")
    d.done(f"{EffectKind.MERGE}:{attempt}")
    d.set_attempt(attempt, base_commit=fact.base_commit)
    d.set_node(row.id.node, base_commit=fact.base_commit)
    if row.cancel_reason is not None or row.state is not AttemptState.PROVISIONING:
        return
    match d.spec(row.id.node).kind:
        case NodeKind.APPROVAL:
            _first(d)
            approvals.open_request(d, row, fact.question)
        case NodeKind.DELIVERY:
            _run(d, row)
            d.want(EffectKind.DELIVER, attempt)
        case _:
            move_attempt(d, attempt, AttemptState.STARTING)
            d.want(EffectKind.SPAWN, attempt)


def spawned(d: Draft, fact: Spawned) -> None:
    """The shim waits: record who it is, and let it go unless it is to be stopped."""
    row = known(d, fact.attempt, "spawned")
    if row is None:
        return
    attempt = str(row.id)
    d.done(f"{EffectKind.SPAWN}:{attempt}")
    d.set_attempt(attempt, identity=fact.identity)
    if row.cancel_reason is not None or row.state is not AttemptState.STARTING:
        return
    _run(d, row)
    d.want(EffectKind.GO, attempt)
    at_once = sum(1 for other in d.live_attempts() if other.identity is not None)
    if at_once > d.graph.max_parallel:
        d.set_graph(max_parallel=at_once)


def _run(d: Draft, row: AttemptRow) -> None:
    _first(d)
    move_attempt(d, str(row.id), AttemptState.RUNNING)
    clocks.start(d, str(row.id))


def _first(d: Draft) -> None:
    if d.graph.first_node_at is None:
        d.set_graph(first_node_at=d.now.at)


def progressed(d: Draft, fact: Progress) -> None:
    """Add a session's events; they belong to the attempt whatever they say."""
    row = known(d, fact.attempt, "progress")
    if row is None:
        return
    node, generation, attempt = row.id.node, row.id.generation, str(row.id)
    d.events.extend(replace(event, node=node, generation=generation, attempt=attempt) for event in fact.events)
    usage = {**row.usage, **{name: amount for name, amount in fact.usage.items() if isfinite(amount)}}
    if usage != row.usage:
        d.set_attempt(row.id, usage=usage)
        d.event(EventKind.SESSION_USAGE, usage, node=node, attempt=attempt)


def finishing(d: Draft, fact: Finishing) -> None:
    """What the attempt left is being stored: this time is not its own."""
    row = known(d, fact.attempt, "finishing")
    if row is None or row.state is AttemptState.FINISHING:
        return
    clocks.stop_attempt(d, str(row.id))
    clocks.stop_node(d, row.id.node)
    if row.cancel_reason is None:
        move_attempt(d, str(row.id), AttemptState.FINISHING)


def succeeded(d: Draft, fact: Succeeded) -> None:
    row = known(d, fact.attempt, "succeeded")
    if row is not None:
        outcomes.succeeded(d, row, fact)


def failed(d: Draft, fact: Failed) -> None:
    row = known(d, fact.attempt, "failed")
    if row is None:
        return
    timed_out = fact.failure.failure_class is FailureClass.TIMEOUT
    state = AttemptState.TIMED_OUT if timed_out else AttemptState.FAILED
    outcomes.failed(d, row, state, fact.failure, wip_commit=fact.wip_commit, retry_after=fact.retry_after)


def ended(d: Draft, fact: Ended) -> None:
    """The tree is empty. Without a wish to stop behind it, the attempt was interrupted."""
    row = known(d, fact.attempt, "ended")
    if row is not None:
        _interrupt(d, row, "it ended without a result", fact.wip_commit)


def interrupted(d: Draft, fact: Interrupted) -> None:
    row = known(d, fact.attempt, "interrupted")
    if row is not None:
        _interrupt(d, row, fact.cause, fact.wip_commit)


def _interrupt(d: Draft, row: AttemptRow, cause: str, wip_commit: str | None) -> None:
    message = f"The attempt was interrupted: {cause}."
    failure = Failure(failure_class=FailureClass.INFRA, code="interrupted", message=message, facts={"cause": cause})
    outcomes.failed(d, row, AttemptState.INTERRUPTED, failure, wip_commit=wip_commit)
