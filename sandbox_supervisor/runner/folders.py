"""Where an attempt's files are, and which attempt names may become paths."""

import re
from dataclasses import dataclass
from pathlib import Path

from sandbox_supervisor.runner.link import RunnerRefused

_ATTEMPT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}\.[1-9][0-9]{0,8}\.[1-9][0-9]{0,8}\Z")
RESULT = "result.json"


@dataclass(frozen=True, slots=True)
class Folder:
    """One attempt's folder below ``work``. What is not named in ``shown`` is never visible to the attempt."""

    path: Path

    @classmethod
    def of(cls, work: Path, attempt: str) -> "Folder":
        """Raises RunnerRefused for a name that is no attempt id."""
        if not _ATTEMPT.match(attempt):
            raise RunnerRefused("bad_attempt", f"{attempt[:80]!r} is not an attempt id like plan.1.1")
        return cls(work / attempt)

    @property
    def tree(self) -> Path:
        return self.path / "tree"

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def tmp(self) -> Path:
        return self.path / "tmp"

    @property
    def artefacts(self) -> Path:
        return self.path / "artefacts"

    @property
    def git(self) -> Path:
        """Our own Git directory: the tree's ``.git`` belongs to the agent and is never trusted."""
        return self.path / "git"

    @property
    def result(self) -> Path:
        return self.tmp / RESULT

    @property
    def shown(self) -> tuple[Path, ...]:
        """What the attempt may read and write."""
        return (self.tree, self.home, self.tmp, self.artefacts)
