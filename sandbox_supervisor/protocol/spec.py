"""The task specification: everything a sandbox needs to know, frozen at creation, without a secret in it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sandbox_supervisor.protocol import PROTOCOL
from sandbox_supervisor.protocol.flow import Flow


class DriverProtocol(StrEnum):
    ACP = "acp"
    SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    id: str
    title: str
    brief: str
    creator: str
    workspace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """``base_ref`` is where ``base_commit`` was found: a hint for servers that refuse to send a bare commit id."""

    slug: str
    clone_url: str
    base_commit: str
    base_ref: str
    task_branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEntry:
    """A coding agent that the flow uses, as the registry described it when the task was frozen."""

    name: str
    protocol: DriverProtocol
    command: tuple[str, ...] = ()  # empty for ``scripted``
    env: dict[str, str] = field(default_factory=dict)
    memory_reserve: int = 0  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The frozen policy as far as the sandbox needs it. Bytes and seconds."""

    max_parallel_attempts: int = 4
    attempts_per_task: int = 10_000
    memory: int | None = None
    cpu: float | None = None
    artefact_quota: int = 512 * 1024 * 1024
    attempt_log: int = 64 * 1024 * 1024
    rerun_patience: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """Where the supervisor reports: a Unix socket on the local provider, an https URL elsewhere."""

    url: str  # e.g. http://control (host part is only a name when ``socket`` is set)
    socket: str | None = None
    heartbeat_interval: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpecification:
    task: TaskInfo
    repository: Repository
    flow: Flow
    nonce: str  # of the sandbox; part of the token's audience
    control: ControlPlane | None = None  # None: no control plane (a graph run from a file)
    inputs: dict[str, Any] = field(default_factory=dict)
    drivers: dict[str, DriverEntry] = field(default_factory=dict)
    limits: Limits = Limits()
    protocol: int = PROTOCOL
