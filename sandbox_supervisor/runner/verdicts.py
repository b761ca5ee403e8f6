"""Say how an attempt's tree ended, and check what a driver host claims. Pure."""

from dataclasses import dataclass
from signal import Signals
from typing import Any

from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.states import FailureClass
from sandbox_supervisor.runner.link import SessionEventKind, SpawnKind
from sandbox_supervisor.runner.wire import Frame

KILLED = 128 + Signals.SIGKILL  # how shells and bubblewrap pass a SIGKILL on
TEXT_LIMIT = 4000
REQUEST_FIELDS = frozenset({"request_id", "kind", "title", "body", "schema", "options", "fingerprint"})
# Tuples, because a hostile host may send what cannot be hashed where a word belongs.
_EVENTS = (
    EventKind.SESSION_STARTED, EventKind.SESSION_PROMPT, EventKind.SESSION_MESSAGE, EventKind.SESSION_THOUGHT,
    EventKind.SESSION_PLAN, EventKind.SESSION_TOOL, EventKind.SESSION_USAGE, EventKind.SESSION_ENDED,
    EventKind.SESSION_NOTE,
)  # fmt: skip
_STREAMS = ("stdout", "stderr")
_OUTCOMES = ("ok", "failed", "cancelled")
_CLASSES = tuple(FailureClass)


class Nonsense(Exception):  # what it is
    """A driver host reported something that no honest one would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is known when a tree is empty."""

    kind: SpawnKind
    stopped: bool  # by us, before its first process had ended
    exited: dict[str, int] | None  # of the first process: {code} or {signal}; None if it was never seen to end
    failed: str | None = None  # why it could not be executed
    report: dict[str, Any] | None = None  # of the driver host
    broken: str | None = None  # why the driver host was not believed


def judge(end: Ending) -> dict[str, Any]:
    """Give the data of EXIT: outcome, failure class, code, message, and what is known of the process."""
    if end.stopped:
        return _exit(end, outcome="cancelled", code="stopped", message="The attempt was told to stop.")
    if end.failed is not None:
        return _failure(end, FailureClass.INFRA, "spawn_failed", f"The program could not be started: {end.failed}")
    if end.broken is not None:
        return _failure(end, FailureClass.PROTOCOL, "driver_host", f"The driver host was not believed: {end.broken}")
    if end.kind is SpawnKind.DRIVER:
        return _judge_driver(end)
    return _judge_command(end)


def empty_session(end: Ending) -> dict[str, Any]:
    """Give EXIT for a session that said nothing, called no tool and changed nothing."""
    message = "The agent ended its turn without a word, a tool call or a change."
    return _failure(end, FailureClass.AGENT_ERROR, "empty", message)


def _judge_driver(end: Ending) -> dict[str, Any]:
    if end.report is not None:
        return _exit(end, **end.report)
    return _failure(end, FailureClass.INFRA, "driver_lost", "The driver host ended without a report.")


def _judge_command(end: Ending) -> dict[str, Any]:
    exited = end.exited or {}
    code, signal = exited.get("code"), exited.get("signal")
    if code == 0:
        return _exit(end, outcome="ok")
    if end.exited is None:
        return _failure(end, FailureClass.INFRA, "tree_lost", "The process ended together with its shim.")
    if signal == Signals.SIGKILL or code == KILLED:
        message = "The command was killed from outside, most likely because memory ran out."
        return _failure(end, FailureClass.INFRA, "killed", message)
    if signal is not None:
        return _failure(end, FailureClass.CHECK_FAILED, "signal", f"The command ended by signal {_name(signal)}.")
    if code == 127:
        return _failure(end, FailureClass.CHECK_FAILED, "not_found", "The command was not found (exit code 127).")
    return _failure(end, FailureClass.CHECK_FAILED, "exit_code", f"The command ended with exit code {code}.")


def _name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return str(number)


def _failure(end: Ending, failure_class: FailureClass, code: str, message: str) -> dict[str, Any]:
    return _exit(end, outcome="failed", failure_class=failure_class, code=code, message=message)


def _exit(end: Ending, **found: Any) -> dict[str, Any]:
    exited = end.exited or {}
    empty: dict[str, Any] = {
        "outcome": "failed", "failure_class": None, "code": None, "message": "", "facts": {}, "result": None,
        "stop_reason": None, "retry_after": None,
    }  # fmt: skip
    known = {"exit_code": exited.get("code"), "signal": exited.get("signal")}
    return empty | known | {name: value for name, value in found.items() if value is not None and name != "quiet"}


# --- what a driver host claims ---------------------------------------------------------------------------------------


def check_event(frame: Frame) -> tuple[SessionEventKind, dict[str, Any], bytes]:
    """Give kind, data and payload of one report. Raises Nonsense."""
    kind, data = frame.header.get("kind"), frame.header.get("data")
    if not isinstance(data, dict):
        raise Nonsense("an event without data")
    match kind:
        case SessionEventKind.EVENT if data.get("kind") in _EVENTS and isinstance(data.get("data"), dict):
            return SessionEventKind.EVENT, {"kind": data["kind"], "data": data["data"]}, b""
        case SessionEventKind.OUTPUT if data.get("stream") in _STREAMS:
            return SessionEventKind.OUTPUT, {"stream": data["stream"]}, frame.payload
        case SessionEventKind.ASK if isinstance(data.get("request_id"), str) and isinstance(data.get("title"), str):
            return SessionEventKind.ASK, {name: data.get(name) for name in REQUEST_FIELDS}, b""
        case SessionEventKind.USAGE:
            numbers = {str(name)[:40]: value for name, value in data.items() if type(value) in (int, float)}
            return SessionEventKind.USAGE, dict(list(numbers.items())[:20]), b""
    raise Nonsense(f"an event of kind {str(kind)[:40]!r}")


def check_report(report: Any) -> dict[str, Any]:
    """Give the driver host's account of the end, reduced to what may be in it. Raises Nonsense."""
    if not isinstance(report, dict) or report.get("outcome") not in _OUTCOMES:
        raise Nonsense("an end without an outcome")
    failure_class = report.get("failure_class")
    if failure_class is not None and failure_class not in _CLASSES:
        raise Nonsense("an unknown failure class")
    kept = {name: report.get(name) for name in ("outcome", "failure_class", "result")}
    for name in ("code", "message", "stop_reason"):
        kept[name] = str(report[name])[:TEXT_LIMIT] if report.get(name) is not None else None
    for name in ("retry_after", "exit_code", "signal"):
        kept[name] = report[name] if type(report.get(name)) in (int, float) else None
    kept["facts"] = report["facts"] if isinstance(report.get("facts"), dict) else {}
    kept["quiet"] = bool(report.get("quiet")) and report.get("result") is None
    return kept
