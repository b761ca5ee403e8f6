"""Nodes that wait for a person's yes. They hold no slot and have no process."""

from datetime import datetime, timedelta
from typing import Any

from sandbox_supervisor.graph.draft import Draft
from sandbox_supervisor.graph.moves import close_request, end_attempt, end_node, move_attempt, move_node
from sandbox_supervisor.graph.rows import AttemptRow, RequestRow
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.flow import Approval, OnTimeout
from sandbox_supervisor.protocol.messages import Failure
from sandbox_supervisor.protocol.states import AttemptState, FailureClass, NodeState, RequestKind, RequestState


def spec_of(d: Draft, key: str) -> Approval:
    approval = d.spec(key).approval
    if approval is None:
        raise ValueError(f"node {key} is no approval")
    return approval


def open_request(d: Draft, row: AttemptRow, question: str | None = None) -> None:
    """Put the question, with the flow's options, and start its time-out."""
    spec = spec_of(d, row.id.node)
    attempt = str(row.id)
    request = RequestRow(
        id=f"approval:{attempt}",
        kind=RequestKind.APPROVAL,
        node=row.id.node,
        attempt=attempt,
        state=RequestState.OPEN,
        title=question or spec.question,
        options=tuple({"id": option, "name": option} for option in spec.options),
        opened_at=d.now.at,
        expires_at=_expiry(d.now.at, spec.timeout),
    )
    opened(d, request)
    move_attempt(d, attempt, AttemptState.NEEDS_INPUT)
    move_node(d, row.id.node, NodeState.NEEDS_INPUT)
    if spec.timeout is not None:
        d.set_timer("approval", attempt, spec.timeout)


def opened(d: Draft, request: RequestRow) -> None:
    """Store a new request, with its event."""
    d.set_request(request)
    hidden = ("fingerprint", "rev")
    view = {key: value for key, value in codec.plain(request).items() if key not in hidden}
    d.event(EventKind.REQUEST_OPENED, view, node=request.node, attempt=request.attempt)


def _expiry(at: str, seconds: float | None) -> str | None:
    if seconds is None:
        return None
    try:
        moment = datetime.fromisoformat(at) + timedelta(seconds=seconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def answered(d: Draft, request: RequestRow, option: str | None, actor: str) -> None:
    """Take a person's word: the first option succeeds the node, anything else fails it."""
    row = d.attempt(request.attempt)
    key = row.id.node
    spec = spec_of(d, key)
    result = {"option": option, "actor": actor}
    if option == spec.options[0]:
        end_attempt(d, request.attempt, AttemptState.SUCCEEDED, result=result, result_commit=row.base_commit)
        end_node(d, key, NodeState.SUCCEEDED, winner=request.attempt, result=result, **_passed_on(d, row, option))
        return
    said = f"answered “{option}”" if option else "declined"
    message = f"{actor} {said} to “{request.title}”."
    failure = Failure(failure_class=FailureClass.CHECK_FAILED, code="approval_refused", message=message)
    end_attempt(d, request.attempt, AttemptState.FAILED, failure=failure)
    end_node(d, key, NodeState.FAILED, failure=failure, result=result)


def expired(d: Draft, attempt: str) -> None:
    """Nobody answered in time: fail or skip, as the flow says."""
    row = d.attempt(attempt)
    key = row.id.node
    spec = spec_of(d, key)
    for request in d.requests_of(attempt):
        if request.state is RequestState.OPEN:
            close_request(d, request, RequestState.EXPIRED)
    message = f"Nobody answered within {spec.timeout:g} s."
    failure = Failure(failure_class=FailureClass.TIMEOUT, code="approval_timeout", message=message)
    end_attempt(d, attempt, AttemptState.TIMED_OUT, failure=failure)
    if spec.on_timeout is OnTimeout.SKIP:
        end_node(d, key, NodeState.SKIPPED, reason="approval_timeout", **_passed_on(d, row, None))
    else:
        end_node(d, key, NodeState.FAILED, failure=failure)


def _passed_on(d: Draft, row: AttemptRow, option: str | None) -> dict[str, Any]:
    """An approval passes its base on; its output is what it consumed and what was said."""
    digest = codec.digest({"consumed": d.node(row.id.node).consumed, "option": option})
    return {"result_commit": row.base_commit, "output_digest": digest}
