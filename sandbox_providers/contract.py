"""The contract between the control plane and whatever makes, watches and removes sandboxes.

Idempotency: the same key with the same specification digest gives the same sandbox; another digest is SpecConflict. A
lost answer followed by a retry never makes a second one. Every call may raise ProviderError.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NoReturn, Protocol


class Secret(str):
    """A string that refuses to show itself by accident. ``reveal()`` is the one way out."""

    __slots__ = ()

    def reveal(self) -> str:
        return str.__str__(self)

    def __str__(self) -> str:
        return "•••"

    def __repr__(self) -> str:
        return "Secret(•••)"

    def __format__(self, spec: str) -> str:
        return "•••"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is never pickled")


SecretBundle = Mapping[str, Mapping[str, Secret]]  # recipient → key → value; recipients: supervisor, materialise


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Bytes and cores; None leaves the provider's default."""

    cpu_request: float | None = None
    cpu_limit: float | None = None
    memory_request: int | None = None
    memory_limit: int | None = None
    ephemeral_storage_limit: int | None = None
    workspace_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What to create. ``specification``: canonical JSON of the protocol's TaskSpecification; it holds no secret."""

    key: str  # idempotency key: the task id
    name: str  # deterministic sandbox name, chosen by the control plane, never reused
    task_id: str
    digest: str  # of ``specification``
    specification: bytes
    image_digest: str
    template_reference: str = ""
    runtime_class: str | None = None
    resources: Resources = Resources()
    secret_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # recipient → names of its keys
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRef:
    """Names one sandbox; opaque to callers. ``instance`` is empty until the first instance is known."""

    provider: str
    version: str
    name: str
    uid: str
    instance: str = ""

    def to_json(self) -> dict[str, str]:
        return {
            "provider": self.provider,
            "version": self.version,
            "name": self.name,
            "uid": self.uid,
            "instance": self.instance,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> "SandboxRef":
        """Raises InvalidSpec for anything that ``to_json`` did not make."""
        try:
            return cls(**data)
        except TypeError as error:
            raise InvalidSpec("reference_unreadable", f"not a sandbox reference: {error}") from None


class State(StrEnum):
    ABSENT = "absent"
    PENDING = "pending"
    READY = "ready"
    UNREADY = "unready"
    UNREACHABLE = "unreachable"
    SUSPENDED = "suspended"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the supervisor listens, and the sha-256 of the certificate it must show (hex)."""

    host: str
    port: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the provider says at one moment. FAILED, LOST and TERMINATED only when ``authoritative``.

    ``reason`` is a stable word for the control plane (a failure code of its table where it ends a task), ``cause`` the
    provider's own words, ``evidence`` what it looked at.
    """

    state: State
    reason: str = ""
    cause: str = ""
    instance: str = ""
    endpoint: Endpoint | None = None
    authoritative: bool = False
    evidence: Mapping[str, Any] = field(default_factory=dict)


class Termination(StrEnum):
    REQUESTED = "requested"
    CONFIRMED = "confirmed"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Until when the provider will keep the sandbox by itself; None: it has no lifetime of its own."""

    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What clean-up removed and what still remains; done when ``remaining`` is empty."""

    removed: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Leave to remove one sandbox. Made in ``tasks_app.services.retention`` only; a test enforces it."""

    task: str
    reason: str  # person_deleted | deadline_passed


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCapabilities:
    name: str
    version: str
    serves: tuple[str, ...]  # reference schemas (``SandboxRef.version``) that this plugin can still serve
    isolation: str  # what stands between a sandbox and the rest, in words for the task page
    isolation_detail: str = ""
    instance_identity: bool = True
    max_lifetime: float | None = None  # seconds
    image_reference: str = ""
    image_digest: str = ""
    not_offered: Mapping[str, str] = field(default_factory=dict)  # contract case → why


class ProviderError(Exception):
    """``code`` is a stable word; the message says what, where and how to fix it."""

    def __init__(self, code: str, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts


class Unavailable(ProviderError):
    """Outcome unknown: ask again with the same key."""


class Throttled(Unavailable):
    """As Unavailable; not before ``retry_after`` seconds."""

    def __init__(self, code: str, message: str, *, retry_after: float, **facts: Any) -> None:
        super().__init__(code, message, **facts)
        self.retry_after = retry_after


class PermissionDenied(ProviderError):
    """The provider refuses us; says nothing about the sandbox."""


class InvalidSpec(ProviderError):
    """It can never be created like this."""


class CapacityGap(ProviderError):
    """No room now."""


class SpecConflict(ProviderError):
    """The key or name exists with another specification."""


class IdentityMismatch(ProviderError):
    """The reference names another instance than the one that is there, or an authority another task."""


class Provider(Protocol):
    def create(self, spec: SandboxSpec, secrets: SecretBundle) -> SandboxRef:
        """Converge on the sandbox of ``spec.key``. Safe to repeat; never deletes anything."""

    def observe(self, ref: SandboxRef) -> Observation:
        """Look, change nothing. Raises Unavailable rather than guess."""

    def renew(self, ref: SandboxRef, until: datetime) -> Lease:
        """Ask to be kept until ``until``; never moves backwards, never revives. Raises IdentityMismatch when lost."""

    def withdraw_secret(self, ref: SandboxRef) -> None:
        """Make sure that no copy of the bundle can be had through the provider. Repeating is safe."""

    def terminate(self, ref: SandboxRef, *, reason: str) -> Termination:
        """Stop compute, keep evidence; never resumable. Repeating is safe and never hits a successor."""

    def clean_up(self, ref: SandboxRef, authority: Authority) -> Report:
        """Remove every runtime object. Raises IdentityMismatch when ``authority`` is for another task."""

    def list_owned(self) -> Iterator[SandboxRef]:
        """Discovery: reports, never acts. Foreign and unreadable objects are skipped."""

    def capabilities(self) -> ProviderCapabilities:
        """What this provider is and can do, probed once per process."""
