"""The playbook of the scripted driver: its steps as values. ``playbook_reader`` makes them from plain lists."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class EditKind(StrEnum):
    CONTENT = "content"
    REPLACE = "replace"
    APPEND = "append"
    DELETE = "delete"


class Stream(StrEnum):
    """Where a flood goes: raw bytes on a stream of the agent process, or ACP text updates."""

    STDOUT = "stdout"
    STDERR = "stderr"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """All that is set must hold. ``prompt_contains`` looks at the rendered prompt of this attempt."""

    generations: tuple[int, ...] = ()
    attempt: int | None = None
    prompt_contains: str | None = None

    def holds(self, *, generation: int, attempt: int, prompt: str) -> bool:
        return (
            (not self.generations or generation in self.generations)
            and (self.attempt is None or attempt == self.attempt)
            and (self.prompt_contains is None or self.prompt_contains in prompt)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    verb: ClassVar[str] = "say"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    verb: ClassVar[str] = "think"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    content: str
    status: str  # pending | in_progress | completed


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    verb: ClassVar[str] = "plan"
    entries: tuple[PlanEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """``path`` is relative to the tree. REPLACE: ``old`` (first occurrence) becomes ``text``."""

    verb: ClassVar[str] = "edit"
    path: str
    kind: EditKind
    text: str = ""
    old: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A shell command, shown as a tool call. Another exit code than ``expect_exit`` fails the agent."""

    verb: ClassVar[str] = "run"
    command: str
    expect_exit: int | None = None  # None: any will do


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A form for a person: ``schema`` of its answer, or ``options`` to choose one from."""

    verb: ClassVar[str] = "ask"
    title: str
    body: str = ""
    schema: dict[str, Any] | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    verb: ClassVar[str] = "permission"
    title: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    verb: ClassVar[str] = "sleep"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    verb: ClassVar[str] = "result"
    value: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    verb: ClassVar[str] = "crash"
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    verb: ClassVar[str] = "flood"
    size: int  # bytes
    stream: Stream = Stream.MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class BadJson:
    verb: ClassVar[str] = "bad_json"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreCancel:
    verb: ClassVar[str] = "ignore_cancel"
    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkDaemon:
    verb: ClassVar[str] = "fork_daemon"
    seconds: float


Action = (
    Say
    | Think
    | Plan
    | Edit
    | Run
    | Ask
    | Permission
    | Sleep
    | Result
    | Crash
    | Flood
    | BadJson
    | IgnoreCancel
    | ForkDaemon
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    action: Action
    when: When = When()
