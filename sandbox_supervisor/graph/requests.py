"""Questions and permissions of attempts, and the answers of persons to them and to approvals."""

from dataclasses import replace
from typing import Any

from sandbox_supervisor.graph import approvals, clocks
from sandbox_supervisor.graph.attempts import known
from sandbox_supervisor.graph.draft import Draft, is_live
from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.facts import Asked
from sandbox_supervisor.graph.moves import close_request, move_attempt, move_node
from sandbox_supervisor.graph.rows import AttemptId, RequestRow
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.messages import Command, OutcomeCode
from sandbox_supervisor.protocol.states import AttemptState, NodeState, RequestKind, RequestState

MOST_OPEN = 50  # questions of one attempt at once


def asked(d: Draft, fact: Asked) -> None:
    """An attempt waits for a person: its clock stops. Repeating the same request changes nothing.

    An answer that an interrupted attempt of the same generation could no longer use is given again when the question's
    fingerprint is the same. What is asked while ``MOST_OPEN`` questions of the attempt are open is cancelled at once.
    """
    request = fact.request
    row = known(d, AttemptId.parse(request.attempt), "asked")
    if row is None or request.id in d.state.requests:
        return
    if row.cancel_reason is not None:
        d.event(EventKind.ATTEMPT_LATE, {"what": "asked"}, node=row.id.node, attempt=request.attempt)
        return
    if sum(other.state is RequestState.OPEN for other in d.requests_of(request.attempt)) >= MOST_OPEN:
        note = {"text": f"{MOST_OPEN} questions are open; a further one was cancelled: {request.title[:200]}"}
        d.event(EventKind.SESSION_NOTE, note, node=row.id.node, attempt=request.attempt)
        _reply(d, request, {"cancelled": True})
        return
    fresh = replace(request, node=row.id.node, state=RequestState.OPEN, opened_at=request.opened_at or d.now.at, rev=0)
    approvals.opened(d, fresh)
    earlier = _earlier_answer(d, fresh)
    if earlier is not None:
        close_request(d, fresh, earlier.state, answer=earlier.answer, actor=earlier.actor)
        _reply(d, fresh, earlier.answer)
        return
    clocks.stop_attempt(d, request.attempt)
    if row.state is not AttemptState.NEEDS_INPUT:
        move_attempt(d, request.attempt, AttemptState.NEEDS_INPUT)
        move_node(d, row.id.node, NodeState.NEEDS_INPUT)


def _earlier_answer(d: Draft, request: RequestRow) -> RequestRow | None:
    generation = AttemptId.parse(request.attempt).generation
    for other in d.state.requests.values():
        if not request.fingerprint or (other.node, other.fingerprint) != (request.node, request.fingerprint):
            continue
        attempt = d.state.attempts[other.attempt]
        usable = attempt.state is AttemptState.INTERRUPTED and attempt.id.generation == generation
        if usable and other.state is RequestState.ANSWERED:
            return other
    return None


def _reply(d: Draft, request: RequestRow, answer: Any) -> None:
    d.want(EffectKind.REPLY, request.id, data={"attempt": request.attempt, "answer": answer})


def answer(d: Draft, command: Command) -> None:
    """Take a person's answer; the first one counts. Raises Refusal.

    The answer is ``{"option": id}``, ``{"content": value}``, ``{"declined": true}`` or ``{"cancelled": true}``; whether
    content fits the request's schema is checked before.
    """
    request = d.request(command.request or "")
    if request is None:
        message = f"There is no request {command.request}."
        raise Refusal("unknown_request", message, {"request": command.request}, outcome=OutcomeCode.UNKNOWN)
    if request.state is not RequestState.OPEN:
        raise _closed(request)
    option = _check(request, command.answer)
    said_no = not {"option", "content"} & command.answer.keys()
    state = RequestState.DECLINED if said_no else RequestState.ANSWERED
    close_request(d, request, state, answer=command.answer, actor=command.actor)
    if request.kind is RequestKind.APPROVAL:
        d.clear_timer("approval", request.attempt)
        approvals.answered(d, request, option, command.actor)
    else:
        _reply(d, request, command.answer)
        _go_on(d, request.attempt)


def _closed(request: RequestRow) -> Refusal:
    facts = {"request": request.id, "state": request.state, "actor": request.actor, "answer": request.answer}
    if request.state in (RequestState.ANSWERED, RequestState.DECLINED):
        return Refusal("already_answered", f"{request.actor or 'Somebody'} has already answered this.", facts)
    return Refusal("request_closed", f"The question is {request.state}: nobody waits for an answer any more.", facts)


def _check(request: RequestRow, given: Any) -> str | None:
    """Give the chosen option, None for any other form of answer."""
    forms = {"option", "content", "declined", "cancelled"}
    if not isinstance(given, dict) or len(forms & given.keys()) != 1:
        message = "An answer is one of {option: …}, {content: …}, {declined: true}, {cancelled: true}."
        raise Refusal("bad_answer", message, outcome=OutcomeCode.INVALID)
    if request.options and "content" in given:
        raise _no_option(request)
    if "option" not in given:
        return None
    if given["option"] not in [option.get("id") for option in request.options]:
        raise _no_option(request)
    return str(given["option"])


def _no_option(request: RequestRow) -> Refusal:
    options = [option.get("id") for option in request.options]
    message = (
        f"Choose one of the options: {', '.join(map(str, options))}." if options else "The question has no options."
    )
    return Refusal("bad_option", message, {"options": options}, outcome=OutcomeCode.INVALID)


def _go_on(d: Draft, attempt: str) -> None:
    """Let the attempt run on once nothing that it asked is open any more."""
    row = d.attempt(attempt)
    still_open = any(other.state is RequestState.OPEN for other in d.requests_of(attempt))
    if still_open or not is_live(row) or row.cancel_reason is not None:
        return
    move_attempt(d, attempt, AttemptState.RUNNING)
    move_node(d, row.id.node, NodeState.RUNNING)
    clocks.start(d, attempt)
