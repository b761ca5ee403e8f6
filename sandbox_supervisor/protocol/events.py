"""The kinds of event that a supervisor commits, with the shape of their data, and the envelope they travel in."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EventKind(StrEnum):
    # graph
    LOG_CREATED = "log.created"  # {task, specification}
    SUPERVISOR_STARTED = "supervisor.started"  # {boot}
    GATE_OPENED = "gate.opened"  # {round}
    GATE_CLOSED = "gate.closed"  # {reason}
    GRAPH_STATE = "graph.state"  # {state, failure?}
    GRAPH_REOPENED = "graph.reopened"  # {round, nodes, waiting, stale, actor}
    # nodes and attempts
    NODE_STATE = "node.state"  # {state, generation, outcome?, failure?, reason?, result?}
    NODE_CUTOFF = "node.cutoff"  # {upstream}: unchanged input, result kept
    REWORK_ASKED = "rework.asked"  # {by, node, generation, feedback, round, max_rounds}
    ATTEMPT_STATE = "attempt.state"  # {state, driver?, failure?, base_commit?, result_commit?}
    ATTEMPT_RETRY = "attempt.retry"  # {failure_class, next_n, not_before_in}
    ATTEMPT_LATE = "attempt.late"  # {what}: a fact of an attempt that had already ended, ignored
    # sessions
    SESSION_STARTED = "session.started"  # {agent?, protocol_version?}
    SESSION_PROMPT = "session.prompt"  # {text}
    SESSION_MESSAGE = "session.message"  # {id, role: agent|user, text}: text is appended to the message with this id
    SESSION_THOUGHT = "session.thought"  # {id, text}
    SESSION_PLAN = "session.plan"  # {entries: [{content, status, priority}]}
    SESSION_TOOL = "session.tool"  # {id, title?, kind?, status?, content?, locations?}: a patch by stable id
    SESSION_USAGE = "session.usage"  # totals of the attempt so far: {input_tokens?, output_tokens?, cost?, …}
    SESSION_ENDED = "session.ended"  # {stop_reason?, exit_code?, signal?}
    SESSION_NOTE = "session.note"  # {text}: a tolerated deviation, a warning
    OUTPUT = "output"  # {stream: stdout|stderr, text} or {stream, file, offset, length, digest, head, tail}
    OUTPUT_TRUNCATED = "output.truncated"  # {dropped_bytes}
    # requests
    REQUEST_OPENED = "request.opened"  # RequestView
    REQUEST_CLOSED = "request.closed"  # {id, state, answer?, actor?}
    # what leaves
    ARTEFACT_STORED = "artefact.stored"  # {name, path, digest, size, media_type}
    ARTEFACT_UPLOADED = "artefact.uploaded"  # {digest}
    ARTEFACT_REFUSED = "artefact.refused"  # {name, reason}
    DELIVERY_STATE = "delivery.state"  # {state, commit?, branch?, change_request?, code?, message?}
    # commands, storage
    COMMAND_DONE = "command.done"  # {id, verb, actor}
    STORAGE_FULL = "storage.full"  # {}
    STORAGE_RECOVERED = "storage.recovered"  # {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One event as it travels. ``seq`` is gap-free and strictly increasing for the life of a sandbox."""

    seq: int
    epoch: str
    at: str  # RFC 3339 UTC with milliseconds; a label, never compared
    kind: str
    node: str | None = None
    generation: int | None = None
    attempt: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
