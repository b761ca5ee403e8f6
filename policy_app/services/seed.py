"""Give a deployment its first policy revision from the settings, and follow the image that it builds itself."""

from pathlib import Path

from django.conf import settings
from django.utils import timezone

from policy_app.models import PolicyRevision
from policy_app.services.publish import adopt_runner_image, seed_revision
from policy_app.values import PolicyValues

LOCAL = "local"


def ensure_first_revision() -> PolicyRevision:
    """Publish revision 1 where there is none; on the local provider let later tasks run in the current image.

    What a person published stays, but for the image, which only this machine can know. Safe to repeat and to race.
    """
    now = timezone.now()
    image = current_image()
    revision = seed_revision(PolicyValues(provider=settings.PROVIDERS[0], runner_image=image), now=now)
    if image and revision.provider == LOCAL:
        return adopt_runner_image(image, now=now)
    return revision


def current_image() -> str:
    """Give the digest of the image for new tasks: the setting, else what was built last, else nothing."""
    if settings.SANDBOX_IMAGE:
        return str(settings.SANDBOX_IMAGE)
    built = Path(settings.STATE_DIR) / "images" / "current"
    return built.read_text(encoding="ascii").strip() if built.exists() else ""
