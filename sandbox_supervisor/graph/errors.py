"""What the kernel refuses."""

from typing import Any

from sandbox_supervisor.protocol.messages import OutcomeCode


class Refusal(Exception):
    """The state does not allow it, or there is no such thing. ``code`` is a stable word."""

    def __init__(
        self,
        code: str,
        message: str,
        facts: dict[str, Any] | None = None,
        *,
        outcome: OutcomeCode = OutcomeCode.REFUSED,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts or {}
        self.outcome = outcome
