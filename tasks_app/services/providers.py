"""The installed sandbox providers. A task is always served by the one that it froze."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from policy_app.services.publish import current_revision
from sandbox_providers.contract import Provider
from sandbox_providers.contract import Unavailable as ProviderUnavailable
from tasks_app.models import Task
from tasks_app.states import TERMINAL, Presence

_ready: dict[str, Provider] = {}


def provider_named(name: str) -> Provider:
    """Give the provider of that name, made once per process. Raises contract.Unavailable when it is not installed."""
    if name not in _ready:
        if name not in settings.PROVIDERS:
            raise ProviderUnavailable("provider_not_installed", f"The provider {name!r} is not installed here.")
        _ready[name] = _make(name)
    return _ready[name]


def image_in_use() -> str:
    """Give the digest of the sandbox image for new tasks; empty when none was built."""
    if settings.SANDBOX_IMAGE:
        return str(settings.SANDBOX_IMAGE)
    current = Path(settings.STATE_DIR) / "images" / "current"
    return current.read_text(encoding="utf-8").strip() if current.is_file() else ""


def images_wanted() -> frozenset[str]:
    """Give the digests of the sandbox images that a task may still be made from or runs from, and that new ones get."""
    tasks = Task.objects.exclude(presence=Presence.RECLAIMED).exclude(status__in=TERMINAL, presence=Presence.NONE)
    frozen = tasks.values_list("image_digest", flat=True).distinct()
    named = {*frozen, image_in_use(), current_revision().runner_image}
    return frozenset(name.rpartition("@")[2] for name in named if name)


@contextmanager
def using(name: str, provider: Provider) -> Iterator[None]:
    """Let ``provider`` serve ``name`` in this process for a while."""
    before = _ready.get(name)
    _ready[name] = provider
    try:
        yield
    finally:
        _ready.pop(name, None)
        if before is not None:
            _ready[name] = before


def _make(name: str) -> Provider:
    from sandbox_providers.registry import ProviderSettings, provider_for

    return provider_for(
        name,
        ProviderSettings(
            state_dir=Path(settings.STATE_DIR), isolation=settings.LOCAL_ISOLATION, image_digest=image_in_use()
        ),
    )
