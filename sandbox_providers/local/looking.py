"""Say what is known of a sandbox at this moment, from its folder and the process table. Changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sandbox_providers.contract import Endpoint, Observation, SandboxRef, State, Unavailable
from sandbox_providers.local.layout import Layout
from sandbox_supervisor.protocol import codec, folder, handover
from sandbox_supervisor.protocol.identity import Process, boot_id

T = TypeVar("T")
LOST = "sandbox_lost"
SCHEMA = "1"  # of a reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a sandbox's folder says, read once."""

    order: folder.Order
    record: folder.Record | None
    status: folder.Status | None
    failure: folder.MaterialisationFailure | None
    terminated: folder.Terminated | None
    exit: folder.Exit | None

    @property
    def instance(self) -> str:
        return self.record.launcher.text() if self.record else ""

    def processes(self) -> list[Process]:
        """Give the processes of the sandbox that are known by name and still run."""
        if self.record is None:
            return []
        known = [self.record.launcher, self.record.guard]
        if self.status:
            known += filter(None, [_parsed(self.status.supervisor), _parsed(self.status.runner)])
        return [process for process in known if process.alive()]

    def supervisor_runs(self) -> bool:
        supervisor = _parsed(self.status.supervisor) if self.status else None
        return supervisor is not None and supervisor.alive()


def _parsed(text: str) -> Process | None:
    try:
        return Process.parse(text)
    except ValueError:
        return None


def look(layout: Layout, name: str) -> Sight | None:
    """Read a sandbox's folder; None if nothing was ordered there. Raises Unavailable for what cannot be read."""
    order = layout.order(name)
    if order is None:
        return None
    place = layout.place(name)
    return Sight(
        order=order,
        record=_read(place / folder.RECORD, folder.Record),
        status=_read(place / folder.STATUS, folder.Status),
        failure=_read(place / folder.FAILURE, folder.MaterialisationFailure),
        terminated=_read(place / folder.TERMINATED, folder.Terminated),
        exit=_read(place / folder.EXIT, folder.Exit),
    )


def _read(path: Path, into: type[T]) -> T | None:
    try:
        return handover.read(path, into)
    except (codec.Malformed, OSError) as error:
        raise Unavailable("file_unreadable", f"{path} cannot be read: {error}") from None


def reference(sight: Sight) -> SandboxRef:
    order = sight.order
    return SandboxRef(provider="local", version=SCHEMA, name=order.name, uid=order.uid, instance=sight.instance)


def is_meant(sight: Sight, ref: SandboxRef) -> bool:
    """Say whether the reference names this very sandbox. One without a uid names whatever bears the name."""
    return ref.uid in {"", sight.order.uid}


def observe(layout: Layout, ref: SandboxRef) -> Observation:
    """Decide what the sandbox is, by the first rule that holds. Raises Unavailable when its state cannot be seen."""
    layout.check()
    sight = look(layout, ref.name)
    if sight is None:
        return _absent(layout, ref)
    if not is_meant(sight, ref):
        return _verdict(State.LOST, LOST, "name_reused", sight)
    if sight.record is None:
        return _without_instance(sight)
    if ref.instance and ref.instance != sight.instance:
        return _verdict(State.LOST, LOST, "replaced", sight)
    if sight.record.launcher.alive():
        return _alive(sight, sight.record)
    return _ended(sight, sight.record)


def _absent(layout: Layout, ref: SandboxRef) -> Observation:
    if layout.place(ref.name).exists() and ref.uid:
        raise Unavailable("order_missing", f"The folder of {ref.name} is there, but not its {folder.ORDER}.")
    if layout.gone(ref.name):
        return Observation(state=State.ABSENT, reason="cleaned_up", authoritative=True)
    if ref.uid and not layout.is_known(ref.name):
        raise Unavailable("state_unknown", f"{layout.state} has never heard of {ref.name}; is it the right one?")
    if ref.uid:
        cause = "object_deleted"
        return Observation(state=State.LOST, reason=LOST, cause=cause, instance=ref.instance, authoritative=True)
    return Observation(state=State.ABSENT, reason="never_created", authoritative=True)


def _without_instance(sight: Sight) -> Observation:
    if sight.terminated:
        return _verdict(State.TERMINATED, "terminated", sight.terminated.reason, sight)
    return _passing(State.PENDING, "incomplete", sight)


def _alive(sight: Sight, record: folder.Record) -> Observation:
    endpoint = Endpoint(host=record.host, port=record.port, fingerprint=record.fingerprint)
    phase = sight.status.phase if sight.status else "starting"
    if sight.terminated:
        return _passing(State.TERMINATING, "terminating", sight)
    if phase == "stopping" or sight.failure:
        return _passing(State.UNREADY, "stopping", sight)
    if phase != "running":
        return _passing(State.PENDING, phase, sight, endpoint)
    if sight.supervisor_runs():
        return _passing(State.READY, "running", sight, endpoint)
    return _passing(State.UNREADY, "supervisor_restarting", sight, endpoint)


def _ended(sight: Sight, record: folder.Record) -> Observation:
    """The launcher has ended. Its guard says how, as soon as nothing runs any more; before that there is no verdict."""
    if sight.terminated:
        left = sight.processes()
        if left:
            return _passing(State.TERMINATING, "terminating", sight)
        return _verdict(State.TERMINATED, "terminated", sight.terminated.reason, sight)
    if sight.failure:
        return _verdict(State.FAILED, "materialisation_failed", sight.failure.cause, sight)
    if sight.exit is not None and sight.exit.code:
        return _verdict(State.FAILED, "sandbox_failed", f"the launcher ended with exit code {sight.exit.code}", sight)
    if record.boot_id != boot_id():
        return _verdict(State.LOST, LOST, "rebooted", sight)
    if sight.exit is not None and sight.exit.code == 0:
        return _verdict(State.TERMINATED, "sandbox_stopped", "the launcher was asked to stop", sight)
    if sight.exit is None and record.guard.alive():
        return _passing(State.UNREADY, "stopping", sight)
    return _verdict(State.LOST, LOST, "killed", sight)


def _verdict(state: State, reason: str, cause: str, sight: Sight) -> Observation:
    return Observation(
        state=state,
        reason=reason,
        cause=cause,
        instance=sight.instance,
        authoritative=True,
        evidence=_evidence(sight),
    )


def _passing(state: State, reason: str, sight: Sight, endpoint: Endpoint | None = None) -> Observation:
    return Observation(
        state=state, reason=reason, instance=sight.instance, endpoint=endpoint, evidence=_evidence(sight)
    )


def _evidence(sight: Sight) -> Mapping[str, Any]:
    found = {"failure": sight.failure, "exit": sight.exit, "status": sight.status, "tier": sight.order.tier}
    return {name: codec.plain(value) for name, value in found.items() if value is not None}
