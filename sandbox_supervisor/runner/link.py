"""What the supervisor asks of the runner: the only process that touches an attempt's tree.

``RunnerLink`` is the supervisor's end of the ``ctl`` socket. Every call may raise RunnerLost; then all trees of that
runner are dead or dying, and the attempts are interrupted. Calls about an attempt that the runner does not know raise
RunnerRefused.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from sandbox_supervisor.graph.identity import Identity


class RunnerLost(Exception):
    """The connection to the runner is gone."""


class RunnerRefused(Exception):
    """The runner could not do it. ``code`` is a stable word, ``message`` says what and why."""

    def __init__(self, code: str, message: str, facts: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts or {}


class SpawnKind(StrEnum):
    COMMAND = "command"
    DRIVER = "driver"  # a driver host that talks to one agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """One process tree to start in an attempt's tree. ``env`` is the whole environment beside what the runner adds
    (HOME, TMPDIR, CAISSON_ARTEFACTS, CAISSON_RESULT, PATH, LANG)."""

    kind: SpawnKind
    argv: tuple[str, ...] = ()  # of the command, or of the ACP agent; empty for the scripted agent
    env: dict[str, str] = field(default_factory=dict)
    prompt: str = ""
    result_schema: dict[str, Any] | None = None
    permissions: str = "ask"
    playbook: list[dict[str, Any]] | None = None
    scripted: bool = False
    generation: int = 1
    n: int = 1


class SessionEventKind(StrEnum):
    EVENT = "event"  # data {kind: EventKind, data}: a session event, validated and bounded by the driver host
    OUTPUT = "output"  # data {stream}, payload bytes of at most 64 KiB
    ASK = "ask"  # data {request_id, kind, title, body, schema, options, fingerprint}: answered with ``reply``
    USAGE = "usage"  # data: totals so far
    EXIT = "exit"  # last one; the tree is proven empty. data {outcome: ok|failed|cancelled, failure_class, code,
    #                message, facts, result, exit_code, signal, stop_reason, retry_after}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvent:
    kind: SessionEventKind
    data: dict[str, Any]
    payload: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedTree:
    """``commit`` equals the base when nothing changed. ``pack`` holds what base lacks; empty when nothing changed."""

    commit: str
    tree: str
    changed: bool
    pack: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundArtefact:
    name: str
    path: str
    size: int
    digest: str  # sha256:<hex>; empty when refused
    media_type: str
    refused: str = ""  # why it may not be stored; then it must not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Bytes: the disk blocks of all attempts' folders; the memory of the runner and of everything below it."""

    disk: int = 0
    memory: int = 0


class RunnerLink(Protocol):
    async def prepare(self, attempt: str, base_commit: str) -> str:
        """Make the attempt's own shared clone, detached at ``base_commit``; give the verified HEAD. Safe to repeat."""

    async def spawn(self, attempt: str, spawn: Spawn) -> Identity:
        """Start the shim; it waits for ``go``, and exits without running anything if its connection ends first."""

    async def go(self, attempt: str) -> None:
        """Let the shim exec."""

    def session(self, attempt: str) -> AsyncIterator[SessionEvent]:
        """Everything the attempt does, ending with EXIT. Slow reading slows the process down; nothing is dropped."""

    async def reply(self, attempt: str, request_id: str, answer: dict[str, Any]) -> None:
        """Answer an ASK: ``{"option": id}``, ``{"content": {…}}``, ``{"declined": true}``, ``{"cancelled": true}``."""

    async def message(self, attempt: str, text: str) -> None:
        """One more prompt after this turn."""

    async def stop(self, attempt: str, *, kill: bool) -> None:
        """Escalate (ACP cancel 10 s → stdin closed 2 s → SIGTERM to the tree 5 s → SIGKILL) or go straight to SIGKILL;
        returns when the tree is proven empty. EXIT follows on ``session``. A later call with ``kill`` hastens it."""

    async def commit(self, attempt: str, *, message: str, base_commit: str) -> CommittedTree:
        """Commit what is uncommitted (untracked too, ignored not) on top of the attempt's HEAD, with our author and a
        fixed date, and pack all that ``base_commit`` lacks. No config, hook or filter of the tree takes part."""

    async def artefacts(self, attempt: str, rules: tuple[tuple[str, str], ...], quota: int) -> list[FoundArtefact]:
        """Find declared paths (glob, name) and files in the artefact folder; regular files only, no link followed."""

    def artefact_bytes(self, attempt: str, path: str) -> AsyncIterator[bytes]:
        """Read one found artefact in chunks of at most 256 KiB."""

    async def result(self, attempt: str) -> bytes | None:
        """What the command wrote to ``$CAISSON_RESULT`` (at most 64 KiB), None if it wrote nothing."""

    async def list_files(self, attempt: str, path: str) -> list[dict[str, Any]]:
        """One folder of the tree: ``{name, type: file|dir|link|other, size, executable}``, sorted, at most 10 000."""

    async def read_file(self, attempt: str, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """Bytes and the file's whole size. At most 1 MiB a call. Refuses links, devices and paths outside the tree."""

    async def diff(self, attempt: str, base_commit: str) -> bytes:
        """Unified diff of the tree (untracked files too) against ``base_commit``; at most 8 MiB, then it says so."""

    async def taken(self) -> Taken:
        """Measure what the attempts take. Costs a walk through their folders: ask about once a minute."""

    async def close(self) -> None:
        """End the connection; the runner then ends every tree."""

    async def leftovers(self, identities: tuple[Identity, ...]) -> None:
        """Kill what is left of these trees after a crash, by identity; returns when they are proven empty."""
