"""How many console sockets one task and one member may hold open in this process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

PER_TASK = 32
PER_MEMBER = 64


class TooManySockets(Exception):
    """The task or the member already has as many as allowed."""


class Sockets:
    """Counts; used from one event loop only."""

    def __init__(self) -> None:
        self._of_task: Counter[str] = Counter()
        self._of_member: Counter[str] = Counter()

    @contextmanager
    def held(self, *, task: str, member: str) -> Iterator[None]:
        """Count one socket until the block ends. Raises TooManySockets."""
        if self._of_task[task] >= PER_TASK or self._of_member[member] >= PER_MEMBER:
            raise TooManySockets(f"at most {PER_TASK} sockets of one task and {PER_MEMBER} of one member")
        self._of_task[task] += 1
        self._of_member[member] += 1
        try:
            yield
        finally:
            self._release(task, member)

    def _release(self, task: str, member: str) -> None:
        self._of_task[task] -= 1
        self._of_member[member] -= 1
        self._of_task, self._of_member = +self._of_task, +self._of_member


SOCKETS = Sockets()
