"""What the HTTP server and the control client may ask of the running supervisor. The engine implements it."""

from dataclasses import dataclass
from typing import Any, Protocol

from sandbox_supervisor.protocol.events import Envelope
from sandbox_supervisor.protocol.messages import (
    Command,
    CommandOutcome,
    Head,
    Heartbeat,
    HeartbeatAnswer,
    Snapshot,
)


class NotFound(Exception):
    """No such attempt, file or range; the message says which."""


class Gone(Exception):
    """It existed but cannot be read now (the runner is away, the storage is damaged)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    data: bytes
    offset: int
    size: int  # of all that was produced
    dropped: int = 0  # bytes that the cap has cost; they follow the first ``head`` bytes
    head: int = 0


class Supervisor(Protocol):
    epoch: str

    def head(self) -> Head:
        """Newest committed event."""

    async def snapshot(self) -> Snapshot:
        """The projection and the seq it stands for, read in one transaction."""

    async def events(self, after: int, limit: int) -> list[Envelope]:
        """Up to ``limit`` (≤ 500) events with ``seq > after``, in order. History and live are this one query."""

    async def wait_past(self, seq: int, timeout: float) -> bool:
        """Return as soon as the head is beyond ``seq``; False when ``timeout`` seconds have passed."""

    async def submit(self, command: Command) -> CommandOutcome:
        """Carry out a person's command; repeating its id returns the first outcome."""

    async def attempt_log(self, attempt: str, stream: str, offset: int, length: int) -> LogSlice:
        """Bytes of an attempt's output file. Raises NotFound, Gone."""

    async def attempt_files(self, attempt: str, path: str) -> list[dict[str, Any]]: ...

    async def attempt_file(self, attempt: str, path: str, offset: int, length: int) -> tuple[bytes, int]: ...

    async def attempt_diff(self, attempt: str) -> bytes: ...

    async def artefact(self, digest: str, offset: int, length: int) -> tuple[bytes, int]:
        """Bytes of a stored artefact and its whole size. Raises NotFound."""

    def readiness(self) -> dict[str, str]:
        """Item → "ok" or what is wrong. Ready when all are ok."""

    async def heartbeat(self, beat: int) -> Heartbeat:
        """Facts for the next heartbeat."""

    async def hear(self, answer: HeartbeatAnswer) -> None:
        """Take the control plane's answer: open or close the gate, cancel, archive, learn of settled deliveries."""

    async def wait_urgent(self, timeout: float) -> None:
        """Return when a heartbeat is due at once (readiness, graph state, attention), or after ``timeout`` seconds."""
