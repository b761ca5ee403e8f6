"""How a session ended, in the words of ``EXIT``."""

import re
from dataclasses import asdict, dataclass, field
from signal import Signals
from typing import Any

from sandbox_supervisor.drivers.jsonrpc import RpcError
from sandbox_supervisor.protocol.states import FailureClass

_RATE_LIMITED = re.compile(r"rate.?limit|too many requests|\b429\b|overloaded|quota", re.IGNORECASE)
_RETRY_AFTER = re.compile(r"(?:retry|try again)[^0-9]{0,40}(\d{1,5})\s*(?:s\b|sec)", re.IGNORECASE)
_STOPS = {
    "max_tokens": "The agent stopped because the model's limit of tokens was reached.",
    "max_turn_requests": "The agent stopped because its limit of model requests in one turn was reached.",
    "refusal": "The agent refused to go on.",
}


@dataclass(slots=True, kw_only=True)
class Report:
    """``quiet``: the session said nothing and called no tool."""

    outcome: str  # ok | failed | cancelled
    failure_class: FailureClass | None = None
    code: str | None = None
    message: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    stop_reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    retry_after: float | None = None
    quiet: bool = False

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def failed(failure_class: FailureClass, code: str, message: str, **more: Any) -> Report:
    return Report(outcome="failed", failure_class=failure_class, code=code, message=message, **more)


def of_stop(stop: str, *, cancelled: bool) -> Report:
    """Report a turn that ended otherwise than well."""
    if cancelled:
        return Report(outcome="cancelled", stop_reason=stop, code="cancelled", message="The session was cancelled.")
    code = stop if stop in _STOPS or stop == "cancelled" else "stop_reason"
    message = _STOPS.get(stop, f"The agent ended its turn with the stop reason {stop[:100]!r}.")
    return failed(FailureClass.AGENT_ERROR, code, message, stop_reason=stop[:100])


def of_error(error: RpcError) -> Report:
    """Report an error that the agent answered a request with."""
    text = f"{error.message} {error.data if isinstance(error.data, str | dict) else ''}"[:4000]
    if error.code == 429 or _RATE_LIMITED.search(text):
        after = _RETRY_AFTER.search(text)
        message = f"The model's provider limits requests: {text[:1000]}"
        retry_after = float(after[1]) if after else None
        return failed(FailureClass.RATE_LIMITED, "rate_limited", message, retry_after=retry_after)
    message = f"The agent answered with error {error.code}: {text[:1000]}"
    return failed(FailureClass.AGENT_ERROR, "agent_error", message, facts={"error_code": error.code})


def of_exit(code: int | None) -> Report:
    """Report an agent whose stream ended before its turn did. ``code`` is negative for a signal."""
    if code == -Signals.SIGKILL:
        message = "The agent was killed from outside, most likely because memory ran out."
        return failed(FailureClass.INFRA, "killed", message, signal=-code)
    if code is None:
        return failed(FailureClass.AGENT_ERROR, "crash", "The agent closed its output in the middle of a turn.")
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    message = f"The agent ended in the middle of its turn, with {how}."
    exited = {"exit_code": code} if code >= 0 else {"signal": -code}
    return failed(FailureClass.AGENT_ERROR, "crash", message, **exited)
