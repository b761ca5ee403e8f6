"""What the tests of materialisation say to it, and how they look at the outcome."""

from pathlib import Path

import pytest

from sandbox_supervisor.materialise.failure import Failed
from sandbox_supervisor.materialise.repository import BASELINE, bring_in
from sandbox_supervisor.protocol.spec import Repository
from tests.sandbox_folder import git

ABSENT = "1" * 40


def wanted(source: object, commit: str, ref: str = "main") -> Repository:
    return Repository(slug="demo", clone_url=str(source), base_commit=commit, base_ref=ref, task_branch="caisson/t")


def refusal(target: Path, repository: Repository) -> Failed:
    """Bring in what cannot be, see that nothing was made, and give the reason."""
    with pytest.raises(Failed) as caught:
        bring_in(target, repository)
    assert not target.exists()
    return caught.value


def baseline(target: Path) -> str:
    return git("--git-dir", str(target), "rev-parse", BASELINE)
