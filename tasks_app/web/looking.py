"""Find the best picture of a task's graph: live from its supervisor, else the final one that was kept, else none."""

from dataclasses import dataclass
from enum import StrEnum

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import Snapshot
from tasks_app.live import dial
from tasks_app.models import Task, TaskSnapshot
from workspaces_app.errors import ControlPlaneError


class Source(StrEnum):
    LIVE = "live"
    KEPT = "kept"  # the final snapshot: the sandbox is gone or does not answer
    NONE = "none"  # the sandbox is not there yet, or nothing was kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    source: Source
    snapshot: Snapshot | None
    why: str = ""  # it is not live, in words


def at(task: Task) -> Look:
    """Look at a task's graph. Never raises for a sandbox that does not answer; takes seconds at most."""
    try:
        return Look(source=Source.LIVE, snapshot=dial.get_snapshot(dial.upstream_of(task)))
    except ControlPlaneError as away:
        return _kept(task, away.message)


def _kept(task: Task, why: str) -> Look:
    kept = TaskSnapshot.objects.latest_of(task.pk)
    if kept is None:
        return Look(source=Source.NONE, snapshot=None, why=why)
    try:
        return Look(source=Source.KEPT, snapshot=codec.convert(kept.data, Snapshot), why=why)
    except codec.Malformed:
        return Look(source=Source.NONE, snapshot=None, why="The kept snapshot of this task cannot be read.")
