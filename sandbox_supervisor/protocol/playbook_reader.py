"""Read a playbook, the plain list of a flow file, and name every mistake at once.

The compiler reads it to refuse it early; the scripted agent reads the same list to play it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Any

from sandbox_supervisor.protocol.playbook import (
    Action,
    Ask,
    BadJson,
    Crash,
    Edit,
    EditKind,
    Flood,
    ForkDaemon,
    IgnoreCancel,
    Permission,
    Plan,
    PlanEntry,
    Result,
    Run,
    Say,
    Sleep,
    Step,
    Stream,
    Think,
    When,
)

MAX_STEPS = 500
MAX_SLEEP = 3600.0  # seconds
MAX_FLOOD = 1024 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class PlaybookProblem:
    """``path`` leads from the playbook's list to what is wrong."""

    path: tuple[str | int, ...]
    message: str
    hint: str = ""


def read_playbook(playbook: Any) -> tuple[tuple[Step, ...], tuple[PlaybookProblem, ...]]:
    """Turn the plain list into steps. With any problem the steps are not to be played."""
    reader = _Reader()
    steps = reader.playbook(playbook)
    return steps, tuple(reader.problems)


class _Wrong(Exception):
    def __init__(self, message: str, *inside: str | int, hint: str = "") -> None:
        super().__init__(message)
        self.problem = PlaybookProblem(inside, message, hint)


class _Reader:
    """Collect steps and problems; one mistake in a step hides no mistake in another."""

    def __init__(self) -> None:
        self.problems: list[PlaybookProblem] = []

    def playbook(self, value: Any) -> tuple[Step, ...]:
        if not isinstance(value, list) or not value:
            self.problems.append(PlaybookProblem((), "a playbook is a list of at least one step"))
            return ()
        if len(value) > MAX_STEPS:
            self.problems.append(PlaybookProblem((), f"a playbook has at most {MAX_STEPS} steps, not {len(value)}"))
            return ()
        steps = (self._step(index, item) for index, item in enumerate(value))
        return tuple(step for step in steps if step is not None)

    def _step(self, index: int, item: Any) -> Step | None:
        if not isinstance(item, dict):
            self.problems.append(PlaybookProblem((index,), "a step is a mapping with one verb"))
            return None
        when = self._guarded((index, "when"), _when, item["when"]) if "when" in item else When()
        verbs = [key for key in item if key != "when"]
        unknown = [verb for verb in verbs if verb not in _READERS]
        for verb in unknown:
            self.problems.append(PlaybookProblem((index, verb), f"there is no verb {verb!r}", _guess(verb, _READERS)))
        if len(verbs) != 1:
            found = ", ".join(map(str, verbs)) or "none"
            self.problems.append(PlaybookProblem((index,), f"a step has exactly one verb; here: {found}"))
        if unknown or len(verbs) != 1:
            return None
        action = self._guarded((index, verbs[0]), _READERS[verbs[0]], item[verbs[0]])
        return Step(action=action, when=when) if action is not None and when is not None else None

    def _guarded(self, path: tuple[str | int, ...], read: Callable[[Any], Any], value: Any) -> Any:
        try:
            return read(value)
        except _Wrong as wrong:
            found = wrong.problem
            self.problems.append(PlaybookProblem(path + found.path, found.message, found.hint))
            return None


# --- one reader for each verb ----------------------------------------------------------------------------------------


def _when(value: Any) -> When:
    fields = _mapping(value, allowed=("generation", "attempt", "prompt_contains"))
    wanted = fields.get("generation", [])
    generations = wanted if isinstance(wanted, list) else [wanted]
    return When(
        generations=tuple(_integer(number, "generation", low=1) for number in generations),
        attempt=_integer(fields["attempt"], "attempt", low=1) if "attempt" in fields else None,
        prompt_contains=_text(fields["prompt_contains"], "prompt_contains") if "prompt_contains" in fields else None,
    )


def _plan(value: Any) -> Plan:
    if not isinstance(value, list) or not value:
        raise _Wrong("a plan is a list of entries {content, status}")
    entries = []
    for index, item in enumerate(value):
        fields = _mapping(item, index, allowed=("content", "status"), required=("content",))
        status = fields.get("status", "pending")
        if status not in _STATUSES:
            raise _Wrong(f"a status is one of {', '.join(_STATUSES)}", index, "status")
        entries.append(PlanEntry(content=_text(fields["content"], index, "content"), status=status))
    return Plan(entries=tuple(entries))


def _edit(value: Any) -> Edit:
    fields = _mapping(value, allowed=("path", "with", *EditKind), required=("path",))
    path = _relative_path(_text(fields["path"], "path"), "path")
    kinds = [kind for kind in EditKind if kind in fields]
    if len(kinds) != 1:
        raise _Wrong("an edit has exactly one of content, replace (with `with`), append, delete")
    kind = kinds[0]
    if (kind is EditKind.REPLACE) is not ("with" in fields):
        raise _Wrong("`replace: old` and `with: new` go together")
    if kind is EditKind.REPLACE:
        return Edit(path=path, kind=kind, old=_filled(fields["replace"], "replace"), text=_text(fields["with"], "with"))
    if kind is EditKind.DELETE:
        if fields["delete"] is not True:
            raise _Wrong("`delete` is always true", "delete")
        return Edit(path=path, kind=kind)
    return Edit(path=path, kind=kind, text=_text(fields[kind], kind))


def _run(value: Any) -> Run:
    if isinstance(value, str):
        return Run(command=_filled(value))
    fields = _mapping(value, allowed=("command", "expect_exit"), required=("command",))
    expected = _integer(fields["expect_exit"], "expect_exit", high=255) if "expect_exit" in fields else None
    return Run(command=_filled(fields["command"], "command"), expect_exit=expected)


def _ask(value: Any) -> Ask:
    fields = _mapping(value, allowed=("title", "body", "schema", "options"), required=("title",))
    if ("schema" in fields) is ("options" in fields):
        raise _Wrong("a question has either a schema or options")
    schema = fields.get("schema")
    if schema is not None and not isinstance(schema, dict):
        raise _Wrong("a schema is a mapping", "schema")
    return Ask(
        title=_filled(fields["title"], "title"),
        body=_text(fields.get("body", ""), "body"),
        schema=schema,
        options=_texts(fields["options"], "options") if "options" in fields else (),
    )


def _permission(value: Any) -> Permission:
    fields = _mapping(value, allowed=("title", "options"), required=("title",))
    options = _texts(fields["options"], "options") if "options" in fields else ()
    return Permission(title=_filled(fields["title"], "title"), options=options)


def _flood(value: Any) -> Flood:
    fields = _mapping(value, allowed=("bytes", "stream"), required=("bytes",))
    stream = fields.get("stream", Stream.MESSAGE)
    if stream not in tuple(Stream):
        raise _Wrong(f"a stream is one of {', '.join(Stream)}", "stream")
    return Flood(size=_integer(fields["bytes"], "bytes", low=1, high=MAX_FLOOD), stream=Stream(stream))


def _result(value: Any) -> Result:
    return Result(value=_mapping(value))


def _ignore_cancel(value: Any) -> IgnoreCancel:
    if not isinstance(value, bool):
        raise _Wrong("must be true or false")
    return IgnoreCancel(on=value)


def _fork_daemon(value: Any) -> ForkDaemon:
    fields = _mapping(value, allowed=("seconds",), required=("seconds",))
    return ForkDaemon(seconds=_seconds(fields["seconds"], "seconds"))


_STATUSES = ("pending", "in_progress", "completed")
_READERS: Mapping[str, Callable[[Any], Action]] = {
    "say": lambda value: Say(text=_text(value)),
    "think": lambda value: Think(text=_text(value)),
    "plan": _plan,
    "edit": _edit,
    "run": _run,
    "ask": _ask,
    "permission": _permission,
    "sleep": lambda value: Sleep(seconds=_seconds(value)),
    "result": _result,
    "crash": lambda value: Crash(exit_code=_integer(value, high=255)),
    "flood": _flood,
    "bad_json": lambda value: BadJson(text=_text(value)),
    "ignore_cancel": _ignore_cancel,
    "fork_daemon": _fork_daemon,
}
VERBS = tuple(_READERS)


# --- plain values ----------------------------------------------------------------------------------------------------


def _relative_path(text: str, *inside: str | int) -> str:
    """Give the path of a file inside the tree; anything that leads out of it, or into ``.git``, is refused."""
    pure = PurePosixPath(text)
    parts = pure.parts
    if (
        not parts
        or pure.is_absolute()
        or ".." in parts
        or "\x00" in text
        or any(part.lower() == ".git" for part in parts)
    ):
        raise _Wrong("a path is relative, stays inside the tree and outside .git", *inside)
    return str(pure)


def _mapping(
    value: Any, *inside: str | int, allowed: Sequence[str] = (), required: Sequence[str] = ()
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong("must be a mapping", *inside)
    for key in value:
        if allowed and key not in allowed:
            raise _Wrong(f"there is no key {key!r} here", *inside, str(key), hint=_guess(str(key), allowed))
    for key in required:
        if key not in value:
            raise _Wrong(f"the key {key!r} is missing", *inside)
    return value


def _text(value: Any, *inside: str | int) -> str:
    if not isinstance(value, str):
        raise _Wrong("must be text", *inside)
    return value


def _filled(value: Any, *inside: str | int) -> str:
    if not _text(value, *inside).strip():
        raise _Wrong("must not be empty", *inside)
    return str(value)


def _texts(value: Any, *inside: str | int) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise _Wrong("must be a list of texts", *inside)
    return tuple(_filled(item, *inside, index) for index, item in enumerate(value))


def _integer(value: Any, *inside: str | int, low: int = 0, high: int = 2**31) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _Wrong(f"must be a whole number from {low} to {high}", *inside)
    return value


def _seconds(value: Any, *inside: str | int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _Wrong("must be a number of seconds", *inside)
    if not 0 <= value <= MAX_SLEEP:
        raise _Wrong(f"must be between 0 and {MAX_SLEEP:g} seconds", *inside)
    return float(value)


def _guess(word: object, known: Sequence[str] | Mapping[str, Any]) -> str:
    close = get_close_matches(str(word), list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
