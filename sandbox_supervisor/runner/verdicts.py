"""Say how an attempt's tree ended. Pure."""

from dataclasses import dataclass
from signal import Signals
from typing import Any

from sandbox_supervisor.protocol.states import FailureClass
from sandbox_supervisor.runner.link import SpawnKind

KILLED = 128 + Signals.SIGKILL  # how shells and bubblewrap pass a SIGKILL on


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is known when a tree is empty."""

    kind: SpawnKind
    stopped: bool  # by us, before its first process had ended
    exited: dict[str, int] | None  # of the first process: {code} or {signal}; None if it was never seen to end
    failed: str | None = None  # why it could not be executed
    report: dict[str, Any] | None = None  # of the driver host
    broken: str | None = None  # why the driver host was listened to no longer


def judge(end: Ending) -> dict[str, Any]:
    """Give the data of EXIT: outcome, failure class, code, message, and what is known of the process."""
    if end.stopped:
        return _exit(end, outcome="cancelled", code="stopped", message="The attempt was told to stop.")
    if end.failed is not None:
        return _failure(end, FailureClass.INFRA, "spawn_failed", f"The program could not be started: {end.failed}")
    if end.broken is not None:
        return _failure(end, FailureClass.PROTOCOL, "driver_host", f"The driver host was stopped: {end.broken}")
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
