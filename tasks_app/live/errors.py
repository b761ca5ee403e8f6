"""Why a supervisor could not be asked, or what it said no to."""

from typing import Any, ClassVar

from tasks_app.errors import Refused, Unavailable


class Unreachable(Unavailable):
    """Nobody answers, too slowly, or not in HTTP. Says nothing about the sandbox's existence."""

    default_code: ClassVar[str] = "sandbox_unreachable"


class WrongInstance(Unreachable):
    """Somebody answers with another certificate; nothing was sent."""

    default_code: ClassVar[str] = "wrong_instance"


class TooLarge(Unavailable):
    """The answer is above the limit of the call; ask for a part of it."""

    default_code: ClassVar[str] = "answer_too_large"


class NotYet(Unavailable):
    """The sandbox has no supervisor that could be asked yet."""

    default_code: ClassVar[str] = "sandbox_not_ready"


class NoSandbox(Unavailable):
    """The sandbox is lost or was terminated: nobody will ever answer again."""

    default_code: ClassVar[str] = "sandbox_gone"


class Reclaimed(Unavailable):
    """The sandbox was removed; what is kept of it answers elsewhere."""

    default_code: ClassVar[str] = "reclaimed"


class SupervisorRefused(Refused):
    """The supervisor understood and said no; ``status`` is its HTTP status, ``code`` and the facts are its own."""

    default_code: ClassVar[str] = "supervisor_refused"

    def __init__(self, message: str, *, status: int, code: str = "", facts: dict[str, Any] | None = None) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.facts = facts or {}
