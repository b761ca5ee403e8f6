"""Which providers are installed, by name. An installed package brings its own by an entry point of ``GROUP``."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from sandbox_providers.contract import InvalidSpec, Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """What a provider may be told by the deployment. Bytes."""

    state_dir: Path
    isolation: str = "auto"  # auto, bubblewrap or none
    image_digest: str = ""  # what ``capabilities`` reports as the image for new sandboxes
    min_free_bytes: int = 64 * 1024 * 1024  # below it no sandbox is made


Factory = Callable[[ProviderSettings], Provider]

GROUP = "caisson.sandbox_providers"

_OURS = {
    "local": "sandbox_providers.local.provider:LocalProvider",
    "scripted": "sandbox_providers.scripted:ScriptedProvider",
}


def provider_for(name: str, settings: ProviderSettings) -> Provider:
    """Make the provider called ``name``. Raises InvalidSpec when none of that name is installed."""
    known = {entry.name: entry.value for entry in entry_points(group=GROUP)} | _OURS
    if name not in known:
        installed = ", ".join(sorted(known))
        raise InvalidSpec("provider_unknown", f"No sandbox provider is called {name!r}; installed are: {installed}.")
    module, _, attribute = known[name].partition(":")
    made: Factory = getattr(import_module(module), attribute)
    return made(settings)
