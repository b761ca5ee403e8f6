"""Pin everything a flow refers to, to an exact version; what is missing is a capability gap, all gaps at once."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from registry_app.flows.compiler import CapabilityKind, Reference, references_of
from registry_app.flows.problems import guess
from registry_app.models import DriverVersion, FlowVersion
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Agent, Flow
from sandbox_supervisor.protocol.spec import DriverEntry, DriverProtocol
from workspaces_app.errors import NotVisible


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One frozen entry of the registry. ``reference`` is how the flow writes it, ``version`` what it was pinned to."""

    kind: str
    reference: str
    version: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something that the flow needs and this deployment lacks. ``wanted_by`` names nodes."""

    kind: str
    reference: str
    wanted_by: tuple[str, ...]
    reason: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """``drivers`` is keyed by the reference, as the specification wants it. Use nothing of it while there are gaps."""

    capabilities: tuple[Capability, ...]
    gaps: tuple[Gap, ...]
    drivers: Mapping[str, DriverEntry]


def resolve(version: FlowVersion, *, workspace_id: str) -> Resolution:
    """Pin the references of a flow version for a task in a workspace.

    Raises NotVisible when the flow belongs to another workspace. Two queries, whatever the size of the flow.
    """
    if version.flow.workspace_id not in (None, workspace_id):
        raise NotVisible("There is no such flow.")
    flow = version.compiled
    known = _driver_versions()
    capabilities: list[Capability] = []
    drivers: dict[str, DriverEntry] = {}
    gaps = list(_flow_gaps(version))
    for reference in references_of(flow):
        pinned = _pin(reference, known)
        if isinstance(pinned, Gap):
            gaps.append(pinned)
            continue
        drivers[reference.name] = pinned.entry
        gaps += _playbook_gaps(flow, reference, pinned.entry)
        capabilities.append(
            Capability(
                kind=str(CapabilityKind.DRIVER), reference=reference.name, version=str(pinned), digest=pinned.digest
            )
        )
    return Resolution(capabilities=tuple(capabilities), gaps=tuple(gaps), drivers=drivers)


def vanished(version: FlowVersion, frozen: Iterable[Mapping[str, Any]]) -> tuple[Gap, ...]:
    """Say which entries that a task of this flow version has frozen may not be used by a new sandbox any more."""
    usable = {str(driver): driver.digest for versions in _driver_versions().values() for driver in versions}
    return tuple(_flow_gaps(version)) + tuple(
        Gap(
            kind=entry["kind"],
            reference=entry["version"],
            wanted_by=(),
            reason=f"The driver {entry['version']} was withdrawn.",
            hint="Create the task again with a version that may be used.",
        )
        for entry in frozen
        if entry["kind"] == CapabilityKind.DRIVER and usable.get(entry["version"]) != entry["digest"]
    )


def capability_digest(resolution: Resolution, *, flow_digest: str, policy: Mapping[str, Any]) -> str:
    """Give the one string by which two tasks compare what was frozen. ``policy`` is plain JSON: revision and values."""
    frozen = sorted((one.kind, one.version, one.digest) for one in resolution.capabilities)
    return codec.digest({"capabilities": frozen, "flow": flow_digest, "policy": policy})


def _driver_versions() -> dict[str, list[DriverVersion]]:
    """Give every driver's versions that new tasks may use, newest first."""
    found: dict[str, list[DriverVersion]] = {}
    for version in DriverVersion.objects.usable().select_related("driver").order_by("driver__name", "-number"):
        found.setdefault(version.driver.name, []).append(version)
    return found


def _flow_gaps(version: FlowVersion) -> Iterator[Gap]:
    if version.yanked_at is not None:
        yield Gap(
            kind="flow",
            reference=str(version),
            wanted_by=(),
            reason=f"This version was withdrawn: {version.yanked_because or 'no reason given'}.",
            hint="Choose a newer version of the flow.",
        )


def _pin(reference: Reference, known: Mapping[str, list[DriverVersion]]) -> DriverVersion | Gap:
    if reference.kind is not CapabilityKind.DRIVER:
        reason = f"The registry has no {reference.kind} {reference.name!r}."
        return _gap(reference, reason, f"Take the reference out of the flow: no {reference.kind} can be added here.")
    name, _, wanted = reference.name.partition("@")
    versions = known.get(name, [])
    if not versions:
        return _gap(reference, f"The registry has no driver {name!r}.", guess(name, known))
    for version in versions:
        if not wanted or wanted == str(version.number):
            return version
    numbers = ", ".join(str(version.number) for version in versions)
    return _gap(reference, f"The driver {name!r} has no usable version {wanted!r}.", f"Usable versions: {numbers}.")


def _playbook_gaps(flow: Flow, reference: Reference, entry: DriverEntry) -> Iterator[Gap]:
    """A playbook goes with a scripted driver, and only with one."""
    scripted = entry.protocol is DriverProtocol.SCRIPTED
    odd = tuple(
        node.key
        for node in flow.all_nodes()
        for agent in _agents(node.agent, node.merge.agent if node.merge else None)
        if agent.driver == reference.name and (agent.playbook is not None) is not scripted
    )
    if odd:
        told = "plays a playbook, and these nodes have none" if scripted else "cannot play a playbook"
        yield Gap(
            kind=str(CapabilityKind.DRIVER),
            reference=reference.name,
            wanted_by=odd,
            reason=f"The driver {reference.name!r} {told}.",
            hint="A playbook goes with the scripted driver only.",
        )


def _agents(*agents: Agent | None) -> Iterator[Agent]:
    return (agent for agent in agents if agent is not None)


def _gap(reference: Reference, reason: str, hint: str) -> Gap:
    return Gap(
        kind=str(reference.kind), reference=reference.name, wanted_by=reference.wanted_by, reason=reason, hint=hint
    )
