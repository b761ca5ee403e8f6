"""A provider without sandboxes: in memory, exact, and as unreliable as a test asks.

All providers of one state directory share one ``World``. ``world.plan(verb, fault)`` makes the next call of a verb go
wrong; ``world.kill``, ``replace``, ``delete`` … change what is there. ``world.history`` is what was done, in order.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import ClassVar, TypeVar

from sandbox_providers.contract import (
    Authority,
    CapacityGap,
    Endpoint,
    IdentityMismatch,
    InvalidSpec,
    Lease,
    Observation,
    PermissionDenied,
    ProviderCapabilities,
    ProviderError,
    Report,
    SandboxRef,
    SandboxSpec,
    SecretBundle,
    SpecConflict,
    State,
    Termination,
    Throttled,
    Unavailable,
)
from sandbox_providers.registry import ProviderSettings

T = TypeVar("T")
SCHEMA = "1"
IMAGE = "sha256:" + "5" * 64
LOST = "sandbox_lost"


class Fault(StrEnum):
    LOST_REQUEST = "lost_request"  # no effect, no answer
    LOST_RESPONSE = "lost_response"  # effect, no answer
    LATE = "late"  # effect; the answer waits for ``world.release()``
    THROTTLED = "throttled"
    DENIED = "denied"
    NO_CAPACITY = "no_capacity"
    SAYS_ABSENT = "says_absent"  # observe only: a stale read that has never heard of it
    SAYS_AS_BEFORE = "says_as_before"  # observe only: a stale read of what was last said


@dataclass(slots=True, kw_only=True)
class Box:
    """One sandbox of the world."""

    spec: SandboxSpec
    uid: str
    instance: str
    state: State
    reason: str = ""
    cause: str = ""
    secrets: SecretBundle | None = field(default=None, repr=False)
    running: bool = True  # compute exists
    stuck: tuple[str, ...] = ()  # what clean_up cannot remove
    failure: Mapping[str, str] | None = None  # of its materialisation


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One line of the history. ``outcome``: ok, unknown (no answer), refused; ``effect``: whether it took place."""

    verb: str
    name: str
    outcome: str
    effect: bool


class World:
    """What is there, and what shall go wrong next. Thread-safe."""

    _worlds: ClassVar[dict[Path, "World"]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def of(cls, state_dir: Path) -> "World":
        """Give the world that the providers of this state directory share."""
        with cls._guard:
            return cls._worlds.setdefault(state_dir, cls())

    @classmethod
    def forget(cls, state_dir: Path) -> None:
        """Let go of a world; a provider made afterwards starts in an empty one."""
        with cls._guard:
            cls._worlds.pop(state_dir, None)

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.boxes: dict[str, Box] = {}
        self.gone: dict[str, str] = {}  # name → uid
        self.history: list[Done] = []
        self.down = False  # every call raises Unavailable
        self.first_state = State.READY
        self.start_failures: dict[bytes, Mapping[str, str]] = {}  # specification → how its materialisation fails
        self.endpoint = Endpoint(host="127.0.0.1", port=1, fingerprint="0" * 64)
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._said: dict[str, Observation] = {}
        self._numbers = count(1)
        self._release = threading.Event()

    def plan(self, verb: str, *faults: Fault) -> None:
        """Let the next calls of ``verb`` go wrong, one fault each."""
        with self.lock:
            self._faults[verb].extend(faults)

    def take_fault(self, verb: str) -> Fault | None:
        with self.lock:
            return self._faults[verb].popleft() if self._faults[verb] else None

    def release(self) -> None:
        """Let late answers come."""
        self._release.set()

    def wait_release(self, timeout: float = 10.0) -> None:
        if not self._release.wait(timeout):
            raise Unavailable("timeout", "The provider did not answer in time.")

    def add(self, spec: SandboxSpec, secrets: SecretBundle | None) -> Box:
        number = next(self._numbers)
        box = Box(
            spec=spec, uid=f"uid-{number}", instance=f"instance-{number}", state=self.first_state, secrets=secrets
        )
        self.boxes[spec.name] = box
        if failure := self.start_failures.get(spec.specification):
            box.failure = failure
            self.change(
                spec.name, State.FAILED, reason="materialisation_failed", cause=failure.get("cause", ""), running=False
            )
        return box

    # --- what happens to sandboxes -----------------------------------------------------------------------------------

    def change(self, name: str, state: State, *, reason: str = "", cause: str = "", running: bool = True) -> None:
        """Say what a sandbox is from now on."""
        with self.lock:
            box = self.boxes[name]
            box.state, box.reason, box.cause, box.running = state, reason, cause, running

    def kill(self, name: str) -> None:
        self.change(name, State.LOST, reason=LOST, cause="killed", running=False)

    def exit(self, name: str, code: int) -> None:
        state, reason = (State.FAILED, "sandbox_failed") if code else (State.TERMINATED, "sandbox_stopped")
        self.change(name, state, reason=reason, cause=f"exit code {code}", running=False)

    def replace(self, name: str) -> None:
        """Put another instance, with nothing in it, where the sandbox was. It never runs anything."""
        with self.lock:
            box = self.boxes[name]
            box.instance, box.running = f"instance-{next(self._numbers)}", False

    def delete(self, name: str) -> None:
        with self.lock:
            del self.boxes[name]

    def reuse_name(self, name: str) -> None:
        """Put a stranger's sandbox under the name."""
        with self.lock:
            stranger = replace(self.boxes.pop(name).spec, key="stranger", task_id="stranger")
            self.add(stranger, None)

    def say(self, ref: SandboxRef) -> Observation:
        """Give the true observation and remember that it was given."""
        with self.lock:
            seen = self._said[ref.name] = _observe(self, ref)
            return seen

    def said(self, ref: SandboxRef) -> Observation:
        with self.lock:
            return self._said.get(ref.name) or self.say(ref)


def _observe(world: World, ref: SandboxRef) -> Observation:
    box = world.boxes.get(ref.name)
    if box is None:
        if ref.name in world.gone or not ref.uid:
            return Observation(state=State.ABSENT, authoritative=True)
        return _lost("object_deleted", ref.instance)
    if ref.uid not in {"", box.uid}:
        return _lost("name_reused", box.instance)
    if ref.instance not in {"", box.instance}:
        return _lost("replaced", box.instance)
    alive = box.state in {State.PENDING, State.READY, State.UNREADY}
    return Observation(
        state=box.state,
        reason=box.reason,
        cause=box.cause,
        instance=box.instance,
        endpoint=world.endpoint if alive else None,
        authoritative=box.state in {State.FAILED, State.LOST, State.TERMINATED},
        evidence={"failure": box.failure} if box.failure else {},
    )


def _lost(cause: str, instance: str) -> Observation:
    return Observation(state=State.LOST, reason=LOST, cause=cause, instance=instance, authoritative=True)


class ScriptedProvider:
    """The contract over a ``World``."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.world = World.of(settings.state_dir)
        self._image = settings.image_digest or IMAGE

    def create(self, spec: SandboxSpec, secrets: SecretBundle) -> SandboxRef:
        return self._call("create", spec.name, lambda: self._create(spec, secrets))

    def _create(self, spec: SandboxSpec, secrets: SecretBundle) -> SandboxRef:
        if spec.digest != "sha256:" + sha256(spec.specification).hexdigest():
            raise InvalidSpec("digest_wrong", "The digest is not that of the specification's bytes.")
        if spec.image_digest != self._image:
            raise InvalidSpec("image_missing", f"There is no sandbox image {spec.image_digest}.")
        if spec.name in self.world.gone:
            raise SpecConflict("name_used", f"The sandbox {spec.name} was removed; its name is never used again.")
        if any(box.spec.key == spec.key and box.spec.name != spec.name for box in self.world.boxes.values()):
            raise SpecConflict("key_used", f"{spec.key} has a sandbox already.")
        box = self.world.boxes.get(spec.name)
        if box is None:
            box = self.world.add(spec, secrets)
        if (box.spec.key, box.spec.digest) != (spec.key, spec.digest):
            raise SpecConflict("spec_differs", f"The sandbox {spec.name} exists with another specification.")
        return _reference(box)

    def observe(self, ref: SandboxRef) -> Observation:
        fault = self.world.take_fault("observe")
        if fault is Fault.SAYS_ABSENT:
            return Observation(state=State.ABSENT)
        if fault is Fault.SAYS_AS_BEFORE:
            return self.world.said(ref)
        return self._call("observe", ref.name, lambda: self.world.say(ref), fault=fault)

    def renew(self, ref: SandboxRef, until: datetime) -> Lease:
        return self._call("renew", ref.name, lambda: self._renew(ref, until))

    def _renew(self, ref: SandboxRef, until: datetime) -> Lease:
        if until.tzinfo is None:
            raise InvalidSpec("moment_naive", "A lease ends at a moment with a time zone.")
        seen = _observe(self.world, ref)
        if seen.state not in {State.PENDING, State.READY, State.UNREADY}:
            raise IdentityMismatch("sandbox_ended", f"{ref.name} cannot be kept: it is {seen.state}.")
        return Lease(until=None)

    def withdraw_secret(self, ref: SandboxRef) -> None:
        self._call("withdraw_secret", ref.name, lambda: self._withdraw(ref))

    def _withdraw(self, ref: SandboxRef) -> None:
        if box := self._box(ref):
            box.secrets = None

    def terminate(self, ref: SandboxRef, *, reason: str) -> Termination:
        return self._call("terminate", ref.name, lambda: self._terminate(ref, reason))

    def _terminate(self, ref: SandboxRef, reason: str) -> Termination:
        box = self._box(ref)
        if box is None:
            return Termination.GONE
        box.secrets = None
        self.world.change(ref.name, State.TERMINATED, reason="terminated", cause=reason, running=False)
        return Termination.CONFIRMED

    def clean_up(self, ref: SandboxRef, authority: Authority) -> Report:
        return self._call("clean_up", ref.name, lambda: self._clean_up(ref, authority))

    def _clean_up(self, ref: SandboxRef, authority: Authority) -> Report:
        box = self._box(ref)
        if box is None:
            if ref.name not in self.world.boxes:
                self.world.gone.setdefault(ref.name, ref.uid)
            return Report()
        if box.spec.task_id != authority.task:
            raise IdentityMismatch("authority_for_another", f"The authority is not for the task of {ref.name}.")
        remaining = (*box.stuck, *(["compute"] if box.running else []))
        if remaining:
            return Report(remaining=remaining)
        del self.world.boxes[ref.name]
        self.world.gone[ref.name] = box.uid
        return Report(removed=("sandbox",))

    def list_owned(self) -> Iterator[SandboxRef]:
        found = self._call("list_owned", "", lambda: [_reference(box) for box in self.world.boxes.values()])
        yield from found

    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(
            name="scripted",
            version="1",
            serves=(SCHEMA,),
            isolation="no isolation",
            isolation_detail="nothing runs",
            image_reference="none",
            image_digest=self._image,
        )

    def _box(self, ref: SandboxRef) -> Box | None:
        box = self.world.boxes.get(ref.name)
        return box if box is not None and ref.uid in {"", box.uid} else None

    def _call(self, verb: str, name: str, effect: Callable[[], T], *, fault: Fault | None = None) -> T:
        """Carry out a call as far as its fault lets it come, and write it down."""
        fault = fault or self.world.take_fault(verb)
        try:
            if self.world.down:
                raise Unavailable("provider_down", "The provider does not answer.")
            _before(fault)
            with self.world.lock:
                answer = effect()
        except ProviderError as error:
            self._note(verb, name, "unknown" if isinstance(error, Unavailable) else "refused", effect=False)
            raise
        if fault is Fault.LOST_RESPONSE:
            self._note(verb, name, "unknown", effect=True)
            raise Unavailable("timeout", "The provider did not answer in time.")
        self._note(verb, name, "ok", effect=True)
        if fault is Fault.LATE:
            self.world.wait_release()
        return answer

    def _note(self, verb: str, name: str, outcome: str, *, effect: bool) -> None:
        with self.world.lock:
            self.world.history.append(Done(verb=verb, name=name, outcome=outcome, effect=effect))


def _before(fault: Fault | None) -> None:
    match fault:
        case Fault.LOST_REQUEST:
            raise Unavailable("timeout", "The provider did not answer in time.")
        case Fault.THROTTLED:
            raise Throttled("throttled", "The provider asks for patience.", retry_after=5.0)
        case Fault.DENIED:
            raise PermissionDenied("denied", "The provider refuses this client.")
        case Fault.NO_CAPACITY:
            raise CapacityGap("no_capacity", "The provider has no room now.")
        case _:
            pass


def _reference(box: Box) -> SandboxRef:
    return SandboxRef(provider="scripted", version=SCHEMA, name=box.spec.name, uid=box.uid, instance=box.instance)
