"""How a session ended, in the words of ``EXIT``."""

import json
import re
from dataclasses import asdict, dataclass, field
from signal import Signals
from typing import Any

from sandbox_supervisor.drivers.jsonrpc import RpcError
from sandbox_supervisor.protocol.states import FailureClass

AUTH_REQUIRED = -32000  # https://agentclientprotocol.com/protocol/schema: "Authentication required"
LAST_WORDS = 600  # characters of them in a message
_WORDS = ("details", "message", "error", "reason")  # where an error's data may hold some
_UNEXPLAINED = frozenset({"crash", "no_answer", "version", "no_session", "bad_json"})
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
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

    def quote(self, wrote: bytes) -> None:
        """Add the last lines that the agent wrote beside the protocol where the failure alone does not say why."""
        lines = [line.strip() for line in _ESCAPES.sub("", wrote.decode("utf-8", "replace")).splitlines()]
        words = " / ".join([line for line in lines if line][-3:])[-LAST_WORDS:]
        if self.code in _UNEXPLAINED and words:
            self.message = f"{self.message} It last wrote: {words}"

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


def of_start(error: OSError | ValueError) -> Report:
    """Report a program that could not be executed."""
    message = f"The agent could not be started: {error}."
    if isinstance(error, FileNotFoundError | PermissionError):
        message += " An isolated sandbox sees neither your home nor /tmp: install agents elsewhere, such as in /opt."
    return failed(FailureClass.INFRA, "spawn_failed", message)


def of_error(error: RpcError, sign_in: str = "") -> Report:
    """Report an error that the agent answered a request with. ``sign_in`` says what to do when it wants a login."""
    words = f"{error.message.strip()} {_words(error.data)}".strip()[:1000]
    text = f"{words} {_rest(error.data)}".strip()[:1000]
    if error.code == 429 or _RATE_LIMITED.search(text):
        after = _RETRY_AFTER.search(text)
        message = f"The model's provider limits requests: {text}"
        retry_after = float(after[1]) if after else None
        return failed(FailureClass.RATE_LIMITED, "rate_limited", message, retry_after=retry_after)
    facts = {"error_code": error.code}
    if error.code in {AUTH_REQUIRED, 401}:
        message = f"The agent wants to be signed in: {words.rstrip('.')}.{sign_in}"
        return failed(FailureClass.AGENT_ERROR, "sign_in_needed", message, facts=facts)
    return failed(
        FailureClass.AGENT_ERROR, "agent_error", f"The agent answered with error {error.code}: {text}", facts=facts
    )


def _words(data: Any) -> str:
    """Give the words in an error's data: where agents put what "Internal error" does not say."""
    if isinstance(data, str):
        return data
    fields = data if isinstance(data, dict) else {}
    return next((f"({fields[name]})" for name in _WORDS if isinstance(fields.get(name), str) and fields[name]), "")


def _rest(data: Any) -> str:
    """Give data without words as it is."""
    return (
        json.dumps(data, ensure_ascii=False, default=str)
        if isinstance(data, dict) and data and not _words(data)
        else ""
    )


def of_exit(code: int | None, *, begun: bool = True) -> Report:
    """Report an agent whose stream ended before its turn did. ``code`` is negative for a signal."""
    when = "in the middle of its turn" if begun else "before it had opened a session"
    if code == -Signals.SIGKILL:
        message = "The agent was killed from outside, most likely because memory ran out."
        return failed(FailureClass.INFRA, "killed", message, signal=-code)
    if code is None:
        return failed(FailureClass.AGENT_ERROR, "crash", f"The agent closed its output {when}.")
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    exited = {"exit_code": code} if code >= 0 else {"signal": -code}
    return failed(FailureClass.AGENT_ERROR, "crash", f"The agent ended {when}, with {how}.", **exited)
