"""What the API says about tasks, deliveries and events, and what it may be asked."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta

from sandbox_supervisor.protocol.flow import Flow
from sandbox_supervisor.protocol.messages import CancelMode, CommandVerb
from tasks_app.states import Health, Presence, Status
from workspaces_app.rest.paging import PageQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRecord:
    """Whether the supervisor is heard; never ends a task by itself."""

    state: Health
    last_contact_at: datetime | None
    unreachable_since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRecord:
    """Durations in seconds. ``seconds_left`` counts on the database clock at the moment of the answer."""

    max_seconds: float
    first_terminal_at: datetime | None
    retain_until: datetime | None
    seconds_left: float | None
    reclaimed_at: datetime | None
    remaining: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    code: str
    stage: str
    message: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowVersionReference:
    id: str
    name: str
    number: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    id: str
    workspace: str
    title: str
    brief: str
    creator: str
    created_at: datetime
    status: Status
    presence: Presence
    health: HealthRecord
    attention: Annotated[int, Meta(description="How many questions wait for a person.")]
    round: int
    failure: FailureRecord | None
    retention: RetentionRecord
    repository: str
    remote: Annotated[str, Meta(description="Where the task branch is pushed.")]
    base_commit: str
    base_ref: str
    task_branch: str
    flow: str
    flow_version: FlowVersionReference
    policy_revision: int
    capability_digest: str
    provider: str
    isolation: str
    sandbox: str
    running_at: datetime | None
    cancel_requested_at: datetime | None
    delete_requested_at: datetime | None
    usage: dict[str, float]
    quarantine: str
    console_url: str
    actions: Annotated[tuple[str, ...], Meta(description="What you may do with it now.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTask(TaskRecord):
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage:
    data: tuple[TaskRecord, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery(PageQuery):
    workspace: str = ""
    status: Status | None = None
    presence: Presence | None = None
    repository: str = ""
    creator: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A member of exactly one workspace may leave it out. ``flow``: a name, ``name@number``, or a version's id."""

    repository: Annotated[str, Meta(min_length=1, max_length=63, description="Slug or id.")]
    flow: Annotated[str, Meta(min_length=1, max_length=100)]
    workspace: Annotated[str, Meta(max_length=63, description="Slug.")] = ""
    title: str = ""
    brief: str = ""
    base: Annotated[
        str, Meta(max_length=300, description="Branch, tag or full commit id; empty: the default branch.")
    ] = ""
    task_branch: Annotated[str, Meta(max_length=300, description="Empty: made up from the title.")] = ""
    inputs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedTask:
    """What would have been frozen; nothing was made."""

    title: str
    base_commit: str
    base_ref: str
    task_branch: str
    flow_version: FlowVersionReference
    policy_revision: int
    capability_digest: str
    capabilities: list[dict[str, Any]]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEdit:
    title: Annotated[str, Meta(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenTask:
    """Everything that the task froze when it was created."""

    task: str
    repository: dict[str, str]
    flow_version: FlowVersionReference
    flow: Flow
    inputs: dict[str, Any]
    capability_digest: str
    capabilities: list[dict[str, Any]]
    policy_revision: int
    policy: dict[str, Any]
    provider: dict[str, str]
    specification_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    id: int
    at: datetime
    kind: str
    actor: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    data: tuple[EventRecord, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRecord:
    id: str
    kind: str
    name: str
    digest: str
    size: int
    round: int
    state: str
    stored_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePage:
    data: tuple[ArchiveRecord, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchReference:
    digest: str
    size: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    id: str
    node: str
    generation: int
    round: int
    state: str
    branch: str
    base_commit: str
    commit: str | None
    title: str
    change_request: dict[str, Any] | None
    patch: PatchReference | None
    code: str
    message: str
    facts: dict[str, Any]
    attempts: int
    created_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPage:
    data: tuple[DeliveryRecord, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommand:
    """rerun: nodes, run_stale · rework: node, feedback, attempt · answer: request, answer · message: attempt, text ·
    cancel: mode · cancel_attempt: attempt. The Idempotency-Key becomes the command's id."""

    verb: CommandVerb
    nodes: Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=1000)] = ()
    run_stale: bool = False
    node: Annotated[str, Meta(max_length=200)] | None = None
    feedback: Annotated[str, Meta(max_length=65536)] | None = None
    attempt: Annotated[str, Meta(max_length=200)] | None = None
    request: Annotated[str, Meta(max_length=200)] | None = None
    answer: Any = None
    text: Annotated[str, Meta(max_length=65536)] | None = None
    mode: CancelMode = CancelMode.CANCEL


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamQuery:
    after: Annotated[str, Meta(max_length=120, description="`epoch:seq` of the last event that is known.")] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 200
    wait: Annotated[float, Meta(ge=0, le=25, description="Seconds to wait for a first event.")] = 0.0
    node: Annotated[str, Meta(max_length=200)] = ""
    attempt: Annotated[str, Meta(max_length=200)] = ""
    kind: Annotated[str, Meta(max_length=64)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPage:
    """``epoch_changed`` and ``seq_ahead`` (409) mean: take the graph anew."""

    epoch: str
    head: Any
    after: Any
    upto: Any
    events: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    stream: Literal["stdout", "stderr"] = "stdout"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesQuery:
    path: Annotated[str, Meta(max_length=4096)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuery:
    path: Annotated[str, Meta(min_length=1, max_length=4096)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyRecord:
    """``checks``: what was looked at → "ok" or what is wrong."""

    ready: bool
    checks: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaRecord:
    name: str
    version: str
    api: str
    protocol: int
    providers: tuple[str, ...]
    console_url: str
    server_time: datetime
