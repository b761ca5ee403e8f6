"""Bring the drivers and flows that ship with the product into the registry."""

from pathlib import Path

from registry_app.flows.compiler import CompiledFlow
from registry_app.models import FlowVersion
from registry_app.services.drivers import store_driver
from registry_app.services.flows import compiled_or_refused, newest_version, store_flow
from sandbox_supervisor.protocol.spec import DriverEntry, DriverProtocol
from workspaces_app.services.audit import SYSTEM

SHIPPED = Path(__file__).parent.parent / "shipped"
FLOWS = ("demo", "tidy")
SCRIPTED = DriverEntry(name="scripted", protocol=DriverProtocol.SCRIPTED)


def ensure_shipped() -> list[FlowVersion]:
    """Publish what ships where it is new or has changed; a second call changes nothing.

    Raises FlowInvalid for a shipped flow that does not compile, which is a fault of this release.
    """
    store_driver(SCRIPTED, description="Plays a playbook from the flow file; no model, no key, no network.", by=SYSTEM)
    return [_ensure_flow((SHIPPED / f"{name}.yaml").read_text(encoding="utf-8")) for name in FLOWS]


def _ensure_flow(source: str) -> FlowVersion:
    compiled: CompiledFlow = compiled_or_refused(source)
    newest = newest_version(compiled.flow.name, None)
    if newest is not None and newest.digest == compiled.digest:
        return newest
    number = newest.number + 1 if newest else 1
    return store_flow(source, compiled, number=number, workspace=None, by=SYSTEM)
