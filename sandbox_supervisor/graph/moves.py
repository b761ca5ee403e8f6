"""The elementary moves of nodes and attempts, each with its event and what belongs to it."""

from dataclasses import replace
from typing import Any

from sandbox_supervisor.graph import clocks
from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.rows import AttemptRow, NodeRow, RequestRow
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.flow import NodeKind
from sandbox_supervisor.protocol.messages import Failure
from sandbox_supervisor.protocol.states import NODE_ENDED, AttemptState, NodeState, RequestState


def move_node(d: Draft, key: str, state: NodeState, *, reason: str | None = None, **changes: Any) -> NodeRow:
    """Change a node's state, with its event, and have its dependants looked at."""
    row = d.set_node(key, state=state, **changes)
    result = row.result if state in NODE_ENDED else None
    told = {"state": state, "outcome": row.outcome, "failure": row.failure, "reason": reason, "result": result}
    d.event(EventKind.NODE_STATE, {**told, "generation": row.generation}, node=key)
    d.touch(key)
    return row


def end_node(
    d: Draft, key: str, state: NodeState, *, failure: Failure | None = None, reason: str | None = None, **changes: Any
) -> NodeRow:
    """Give a node its outcome; it has no live attempt and no timer afterwards."""
    clocks.stop_node(d, key)
    d.clear_timer("retry", key)
    fixed = {"failure": failure, "outcome": str(state), "ended_at": d.now.at, "active": None, "superseded": False}
    return move_node(d, key, state, reason=reason, **{**fixed, "stale": None, **changes})


def reset_node(d: Draft, key: str, **changes: Any) -> NodeRow:
    """Put a node without live attempt back to waiting; a new generation if its join had fired in this one."""
    row = d.node(key)
    clocks.stop_node(d, key)
    d.clear_timer("retry", key)
    blank = NodeRow(key=key)
    kept = {"generation": row.generation + row.fired, "rounds": row.rounds, "feedback": row.feedback, "rev": row.rev}
    d.nodes[key] = replace(blank, **{**kept, **changes})
    return move_node(d, key, NodeState.WAITING)


def move_attempt(d: Draft, attempt: str, state: AttemptState, **changes: Any) -> AttemptRow:
    """Change an attempt's state, with its event."""
    row = d.set_attempt(attempt, state=state, **changes)
    told = {"state": state, "driver": row.driver, "failure": row.failure, "base_commit": row.base_commit}
    d.event(EventKind.ATTEMPT_STATE, {**told, "result_commit": row.result_commit}, node=row.id.node, attempt=attempt)
    return row


def end_attempt(d: Draft, attempt: str, state: AttemptState, **changes: Any) -> AttemptRow:
    """Make an attempt terminal: clocks and timers stop, its open requests close, its open wishes are moot."""
    row = d.attempt(attempt)
    clocks.stop_attempt(d, attempt)
    clocks.stop_node(d, row.id.node)
    close_requests(d, attempt, RequestState.CANCELLED if row.cancel_reason else RequestState.ORPHANED)
    _drop_intents(d, attempt)
    d.set_node(row.id.node, active=None)
    return move_attempt(d, attempt, state, ended_at=d.now.at, **changes)


def _drop_intents(d: Draft, attempt: str) -> None:
    for intent in [*d.state.intents.values(), *d.intents.values()]:
        if attempt in (intent.subject, intent.data.get("attempt")):
            d.done(intent.id)


def stop_attempt(d: Draft, attempt: str, reason: str, *, kill: bool = False) -> None:
    """Commit the wish to stop a live attempt. The first reason stays; a kill hastens an earlier, milder wish.

    An approval has nothing that would have to be stopped: it ends at once.
    """
    row = d.attempt(attempt)
    if row.cancel_reason is None:
        d.set_attempt(attempt, cancel_reason=reason)
        close_requests(d, attempt, RequestState.CANCELLED)
        clocks.stop_attempt(d, attempt)
    if d.spec(row.id.node).kind is NodeKind.APPROVAL:
        end_attempt(d, attempt, AttemptState.CANCELLED)
    elif kill:
        d.want(EffectKind.STOP, attempt, data={"how": "kill", "reason": reason}, suffix=":kill")
    elif row.cancel_reason is None:
        d.want(EffectKind.STOP, attempt, data={"how": "cancel", "reason": reason})


def close_requests(d: Draft, attempt: str, state: RequestState) -> None:
    """Close what an attempt still asks."""
    for row in d.requests_of(attempt):
        if row.state is RequestState.OPEN:
            close_request(d, row, state)
    d.clear_timer("approval", attempt)


def close_request(
    d: Draft, row: RequestRow, state: RequestState, *, answer: Any = None, actor: str | None = None
) -> None:
    """Give a request its end, with its event."""
    at = d.now.at if state in (RequestState.ANSWERED, RequestState.DECLINED) else None
    d.set_request(replace(row, state=state, answer=answer, actor=actor, answered_at=at))
    told = {"id": row.id, "state": state, "answer": answer, "actor": actor}
    d.event(EventKind.REQUEST_CLOSED, told, node=row.node, attempt=row.attempt)
