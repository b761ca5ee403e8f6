"""What the services of a task raise; the tree is that of ``workspaces_app.errors``."""

from typing import ClassVar

from workspaces_app.errors import Conflict, ControlPlaneError, Forbidden, NotVisible, Refused, Unavailable

__all__ = [
    "BaselineRefused",
    "CapabilityGap",
    "Conflict",
    "ControlPlaneError",
    "Forbidden",
    "IllegalMove",
    "KeyReused",
    "NotVisible",
    "QuotaReached",
    "Refused",
    "SafeMode",
    "Stale",
    "TokenEnded",
    "TokenRefused",
    "Unavailable",
]


class CapabilityGap(Refused):
    """The flow needs what the registry lacks; ``facts["gaps"]`` lists all of it. Nothing was created."""

    default_code: ClassVar[str] = "capability_gap"


class BaselineRefused(Refused):
    """The repository, its baseline or the task branch cannot be used; ``code`` says which."""

    default_code: ClassVar[str] = "baseline_refused"


class QuotaReached(Refused):
    """As many sandboxes are kept as the policy allows."""

    default_code: ClassVar[str] = "quota_reached"


class KeyReused(Refused):
    """The idempotency key was used before with another body."""

    default_code: ClassVar[str] = "idempotency_key_reused"


class IllegalMove(ControlPlaneError):
    """A transition that the tables do not know: a defect, never a person's mistake."""

    default_code: ClassVar[str] = "illegal_move"


class SafeMode(Unavailable):
    """The database may have been restored from a backup; what cannot be undone waits for a person's confirmation."""

    default_code: ClassVar[str] = "safe_mode"


class Stale(ControlPlaneError):
    """Another writer was quicker; read again and decide again."""

    default_code: ClassVar[str] = "stale"


class TokenRefused(ControlPlaneError):
    """Not a task token of ours, or one for something else."""

    default_code: ClassVar[str] = "token_refused"


class TokenEnded(ControlPlaneError):
    """The token is ours, but the task's state no longer allows this with it."""

    default_code: ClassVar[str] = "token_ended"
