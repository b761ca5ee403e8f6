"""What persons ask of a running graph. A command's id is taken once; the log answers repetitions."""

from collections.abc import Callable
from dataclasses import replace

from sandbox_supervisor.graph import cancel, requests, rerun
from sandbox_supervisor.graph.draft import Draft, is_live
from sandbox_supervisor.graph.effects import EffectKind
from sandbox_supervisor.graph.errors import Refusal
from sandbox_supervisor.graph.rows import CommandRow
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.messages import Command, CommandOutcome, CommandVerb, OutcomeCode
from sandbox_supervisor.protocol.states import GraphState


def command_digest(command: Command) -> str:
    """Give what two uses of one command id have to agree on: verb and arguments, whoever sends them."""
    return codec.digest(replace(command, id="", actor=""))


def refused(command: Command, refusal: Refusal) -> CommandRow:
    """Give what is to be stored of a refusal, so that repeating the command gives the same answer."""
    outcome = CommandOutcome(
        code=refusal.outcome, reason=refusal.code, message=refusal.message, facts=codec.plain(refusal.facts)
    )
    return CommandRow(id=command.id, digest=command_digest(command), outcome=outcome)


def carry_out(d: Draft, command: Command) -> None:
    """Carry out a command and record that it was done. Raises Refusal; then nothing is changed."""
    if not command.id:
        raise Refusal("no_id", "A command needs an id.", outcome=OutcomeCode.INVALID)
    _VERBS[command.verb](d, command)
    done = CommandOutcome(code=OutcomeCode.DONE)
    d.command = CommandRow(id=command.id, digest=command_digest(command), outcome=done)
    d.event(EventKind.COMMAND_DONE, {"id": command.id, "verb": command.verb, "actor": command.actor})


def _pause(d: Draft, _command: Command) -> None:
    if d.graph.state is not GraphState.RUNNING:
        raise Refusal("not_running", f"Only a running graph can be paused; it is {d.graph.state}.")
    d.move_graph(GraphState.PAUSED)


def _resume(d: Draft, _command: Command) -> None:
    if d.graph.state is not GraphState.PAUSED:
        raise Refusal("not_paused", f"Only a paused graph can be resumed; it is {d.graph.state}.")
    d.move_graph(GraphState.RUNNING)


def _message(d: Draft, command: Command) -> None:
    text, attempt = command.text or "", command.attempt or ""
    if not text.strip():
        raise Refusal("no_text", "A message needs a text.", outcome=OutcomeCode.INVALID)
    row = d.state.attempts.get(attempt)
    if row is None:
        message = f"There is no attempt {attempt}."
        raise Refusal("unknown_attempt", message, {"attempt": attempt}, outcome=OutcomeCode.UNKNOWN)
    if not is_live(row) or row.identity is None or row.driver is None or row.cancel_reason is not None:
        facts = {"attempt": attempt, "state": row.state}
        raise Refusal("no_session", f"Attempt {attempt} has no session that could be told something.", facts)
    d.want(EffectKind.MESSAGE, command.id, data={"attempt": attempt, "text": text})


_VERBS: dict[CommandVerb, Callable[[Draft, Command], None]] = {
    CommandVerb.RERUN: rerun.rerun,
    CommandVerb.REWORK: rerun.rework,
    CommandVerb.ANSWER: requests.answer,
    CommandVerb.MESSAGE: _message,
    CommandVerb.PAUSE: _pause,
    CommandVerb.RESUME: _resume,
    CommandVerb.CANCEL: cancel.cancel,
    CommandVerb.CANCEL_ATTEMPT: cancel.cancel_attempt,
}
