"""How long the server waits for what."""

from dataclasses import dataclass

from sandbox_supervisor.protocol.stream import HEARTBEAT, PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Tempo:
    """Seconds."""

    heartbeat: float = HEARTBEAT
    patience: float = PATIENCE  # with a subscriber that acknowledges nothing or sends no subscribe
    silence: float = 10.0  # until a new connection must have brought a whole request head
