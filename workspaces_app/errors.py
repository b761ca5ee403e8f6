"""The errors of the control plane. Each carries a stable code, a sentence for a person, and facts for a program."""

from typing import Any, ClassVar


class ControlPlaneError(Exception):
    """``code`` is stable and documented; ``message`` says what, where and how to fix it; ``facts`` is plain JSON."""

    default_code: ClassVar[str] = "control_plane_error"

    def __init__(self, message: str, *, code: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.message = message
        self.facts = facts


class Refused(ControlPlaneError):
    """The request makes no sense as it stands; repeating it will not help."""

    default_code = "refused"


class Conflict(Refused):
    """The request was based on something that has changed since."""

    default_code = "conflict"


class PreconditionFailed(Conflict):
    """The version that the client named is not the newest any more."""

    default_code = "precondition_failed"


class PreconditionMissing(Refused):
    """A change of something that others change, too, must name the version it rests on."""

    default_code = "precondition_missing"


class Unauthenticated(ControlPlaneError):
    """Nobody, or nobody that is known, is asking."""

    default_code = "unauthenticated"


class NotVisible(ControlPlaneError):
    """There is no such thing for this actor, whether or not it exists."""

    default_code = "not_found"


class Forbidden(ControlPlaneError):
    """The actor sees the thing but has not the role, the scope or the permission for this."""

    default_code = "forbidden"


class Unavailable(ControlPlaneError):
    """Something that is needed does not answer now; repeating may help."""

    default_code = "unavailable"
