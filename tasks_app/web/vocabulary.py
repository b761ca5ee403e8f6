"""One table of words, glyphs and tones for everything that has a state. Word and glyph say it; the hue repeats it."""

from dataclasses import dataclass
from enum import StrEnum

from sandbox_supervisor.protocol.messages import DeliveryState
from sandbox_supervisor.protocol.states import ATTEMPT_ENDED, NODE_ENDED, AttemptState, NodeState
from tasks_app.states import Health, Presence, Status


class Tone(StrEnum):
    OK = "ok"
    RUN = "run"
    ASK = "ask"
    BAD = "bad"
    STALE = "stale"
    PREP = "prep"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Sign:
    """How a state is shown. ``shape`` is its form in the bar and in the graph."""

    word: str
    glyph: str  # of the sprite, without ``g-``
    tone: Tone
    shape: str = ""


TASK: dict[str, Sign] = {
    Status.PENDING: Sign("pending", "pending", Tone.IDLE),
    Status.PROVISIONING: Sign("provisioning", "prep", Tone.PREP),
    Status.RUNNING: Sign("running", "run", Tone.RUN),
    Status.COMPLETED: Sign("completed", "ok", Tone.OK),
    Status.FAILED: Sign("failed", "bad", Tone.BAD),
    Status.CANCELLED: Sign("cancelled", "cancelled", Tone.IDLE),
}

NODE: dict[str, Sign] = {
    NodeState.WAITING: Sign("waiting", "wait", Tone.IDLE, "wait"),
    NodeState.READY: Sign("ready", "pending", Tone.IDLE, "wait"),
    NodeState.RUNNING: Sign("running", "run", Tone.RUN, "run"),
    NodeState.NEEDS_INPUT: Sign("needs input", "ask", Tone.ASK, "ask"),
    NodeState.SUCCEEDED: Sign("succeeded", "ok", Tone.OK, "ok"),
    NodeState.FAILED: Sign("failed", "bad", Tone.BAD, "bad"),
    NodeState.SKIPPED: Sign("skipped", "skip", Tone.IDLE, "skip"),
    NodeState.UNREACHABLE: Sign("unreachable", "unreach", Tone.IDLE, "skip"),
    NodeState.CANCELLED: Sign("cancelled", "cancelled", Tone.IDLE, "skip"),
    NodeState.STALE: Sign("stale", "stale", Tone.STALE, "stale"),
}

ATTEMPT: dict[str, Sign] = {
    AttemptState.QUEUED: Sign("queued", "pending", Tone.IDLE),
    AttemptState.PROVISIONING: Sign("preparing", "prep", Tone.PREP),
    AttemptState.STARTING: Sign("starting", "prep", Tone.PREP),
    AttemptState.RUNNING: Sign("running", "run", Tone.RUN),
    AttemptState.NEEDS_INPUT: Sign("needs input", "ask", Tone.ASK),
    AttemptState.FINISHING: Sign("finishing", "run", Tone.RUN),
    AttemptState.SUCCEEDED: Sign("succeeded", "ok", Tone.OK),
    AttemptState.FAILED: Sign("failed", "bad", Tone.BAD),
    AttemptState.TIMED_OUT: Sign("timed out", "bad", Tone.BAD),
    AttemptState.CANCELLED: Sign("cancelled", "cancelled", Tone.IDLE),
    AttemptState.INTERRUPTED: Sign("interrupted", "unreach", Tone.BAD),
}

PRESENCE: dict[str, Sign] = {
    Presence.NONE: Sign("no sandbox", "none", Tone.IDLE),
    Presence.CREATING: Sign("requested", "none", Tone.PREP),
    Presence.PRESENT: Sign("present", "box", Tone.IDLE),
    Presence.LOST: Sign("lost", "lost", Tone.BAD),
    Presence.TERMINATED: Sign("terminated", "none", Tone.BAD),
    Presence.RECLAIMING: Sign("being removed", "low", Tone.IDLE),
    Presence.RECLAIMED: Sign("reclaimed", "none", Tone.IDLE),
}

HEALTH: dict[str, Sign] = {
    Health.UNKNOWN: Sign("not heard yet", "pending", Tone.IDLE),
    Health.REACHABLE: Sign("reachable", "dot", Tone.OK),
    Health.UNREACHABLE: Sign("unreachable", "unreach", Tone.ASK),
}

DELIVERY: dict[str, Sign] = {
    DeliveryState.RECEIVED: Sign("being received", "prep", Tone.PREP),
    DeliveryState.QUEUED: Sign("being pushed", "run", Tone.RUN),
    DeliveryState.DELIVERED: Sign("delivered", "ok", Tone.OK),
    DeliveryState.NOTHING: Sign("nothing to deliver", "ok", Tone.OK),
    DeliveryState.REFUSED: Sign("refused", "bad", Tone.BAD),
    DeliveryState.CONFLICT: Sign("conflict", "bad", Tone.BAD),
    DeliveryState.FAILED: Sign("failed", "bad", Tone.BAD),
}

UNKNOWN = Sign("unknown", "pending", Tone.IDLE, "wait")

GROUPS: tuple[tuple[str, tuple[NodeState, ...]], ...] = (
    ("Needs you", (NodeState.NEEDS_INPUT,)),
    ("Running", (NodeState.RUNNING,)),
    ("Failed", (NodeState.FAILED, NodeState.UNREACHABLE)),
    ("Stale", (NodeState.STALE,)),
    ("Waiting", (NodeState.READY, NodeState.WAITING)),
    ("Finished", (NodeState.SUCCEEDED, NodeState.SKIPPED, NodeState.CANCELLED)),
)
"""The node list, by what a person would look for first."""


def for_scripts() -> dict[str, object]:
    """Give the tables of nodes and attempts as plain values, for the page's script."""
    return {
        "node": {state: _plain(sign) for state, sign in NODE.items()},
        "groups": [[name, list(states)] for name, states in GROUPS],
        "ended": sorted(NODE_ENDED),
        "attempt_ended": sorted(ATTEMPT_ENDED),
    }


def _plain(sign: Sign) -> dict[str, str]:
    return {"word": sign.word, "glyph": sign.glyph, "tone": sign.tone, "shape": sign.shape}
