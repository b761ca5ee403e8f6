"""Check what a driver host claims, and reduce it to what may be in it: as hostile as the agent itself. Pure."""

from typing import Any, Literal, Required, TypedDict

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.states import FailureClass
from sandbox_supervisor.runner.link import SessionEventKind
from sandbox_supervisor.runner.wire import Frame

TEXT_LIMIT = 4000
_STREAMS = ("stdout", "stderr")
# Tuples, because a hostile host may send what cannot be hashed where a word belongs.
_OUTCOMES = ("ok", "failed", "cancelled")
_CLASSES = tuple(FailureClass)


class Nonsense(Exception):  # what it is
    """A driver host reported something that no honest one would."""


class _Started(TypedDict, total=False):
    agent: dict[str, str]
    protocol_version: int


class _Text(TypedDict):
    text: str


class _Thought(TypedDict):
    id: str
    text: str


class _Message(_Thought):
    role: Literal["agent", "user"]


class _PlanEntry(TypedDict):
    content: str
    status: str
    priority: str


class _Plan(TypedDict):
    entries: list[_PlanEntry]


class _ToolContent(TypedDict, total=False):
    type: Required[Literal["text", "diff"]]
    text: str
    path: str
    old: str
    new: str
    line: int


class _Location(TypedDict, total=False):
    path: Required[str]
    line: int


class _Tool(TypedDict, total=False):
    id: Required[str]
    title: str
    kind: str
    status: str
    content: list[_ToolContent]
    locations: list[_Location]


class _Ended(TypedDict, total=False):
    stop_reason: str | None
    exit_code: int | None
    signal: int | None


class _Option(TypedDict):
    id: str
    name: str
    kind: str


class _Asked(TypedDict, total=False):
    request_id: Required[str]
    kind: Required[Literal["question", "permission"]]
    title: Required[str]
    body: str
    schema: dict[str, Any] | None
    options: list[_Option]
    fingerprint: str


_SHAPES: dict[str, Any] = {
    EventKind.SESSION_STARTED: _Started,
    EventKind.SESSION_PROMPT: _Text,
    EventKind.SESSION_MESSAGE: _Message,
    EventKind.SESSION_THOUGHT: _Thought,
    EventKind.SESSION_PLAN: _Plan,
    EventKind.SESSION_TOOL: _Tool,
    EventKind.SESSION_ENDED: _Ended,
    EventKind.SESSION_NOTE: _Text,
}


def check_event(frame: Frame) -> tuple[SessionEventKind, dict[str, Any], bytes]:
    """Give kind, data and payload of one report. Raises Nonsense."""
    kind, data = frame.header.get("kind"), frame.header.get("data")
    if not isinstance(data, dict):
        raise Nonsense("an event without data")
    match kind:
        case SessionEventKind.EVENT:
            word = data.get("kind")
            shape = _SHAPES.get(word) if isinstance(word, str) else None
            return SessionEventKind.EVENT, {"kind": word, "data": _shaped(data.get("data"), shape)}, b""
        case SessionEventKind.OUTPUT if data.get("stream") in _STREAMS:
            return SessionEventKind.OUTPUT, {"stream": data["stream"]}, frame.payload
        case SessionEventKind.ASK:
            return SessionEventKind.ASK, _shaped(data, _Asked), b""
        case SessionEventKind.USAGE:
            numbers = {str(name)[:40]: value for name, value in data.items() if type(value) in (int, float)}
            return SessionEventKind.USAGE, dict(list(numbers.items())[:20]), b""
    raise Nonsense(f"an event of kind {str(kind)[:40]!r}")


def _shaped(data: Any, shape: Any) -> dict[str, Any]:
    """Give the fields of ``data`` that ``shape`` knows."""
    if shape is None:
        raise Nonsense("an event of a kind that no session has")
    try:
        found: dict[str, Any] = codec.convert(data, shape)
    except codec.Malformed as error:
        raise Nonsense(f"data that does not fit: {error}") from None
    return found


def check_report(report: Any) -> dict[str, Any]:
    """Give the driver host's account of the end, reduced to what may be in it. Raises Nonsense."""
    if not isinstance(report, dict) or report.get("outcome") not in _OUTCOMES:
        raise Nonsense("an end without an outcome")
    failure_class = report.get("failure_class")
    if failure_class is not None and failure_class not in _CLASSES:
        raise Nonsense("an unknown failure class")
    kept = {name: report.get(name) for name in ("outcome", "failure_class")}
    kept["result"] = report["result"] if isinstance(report.get("result"), dict) else None
    for name in ("code", "message", "stop_reason"):
        kept[name] = str(report[name])[:TEXT_LIMIT] if report.get(name) is not None else None
    for name in ("retry_after", "exit_code", "signal"):
        kept[name] = report[name] if type(report.get(name)) in (int, float) else None
    kept["facts"] = report["facts"] if isinstance(report.get("facts"), dict) else {}
    kept["quiet"] = bool(report.get("quiet")) and kept["result"] is None
    return kept
