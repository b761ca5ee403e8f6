"""Make the demo project: a small Python package as a Git repository with a bare remote."""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sandbox_supervisor.protocol import git_rules

SOURCE = Path(__file__).parent / "shipped" / "demo_project"
BRANCH = "main"
_HISTORY = (
    (
        "Read quantities as exact fractions",
        "2026-03-02T09:00:00+00:00",
        (".gitignore", "pantry/__init__.py", "pantry/quantity.py", "tests/__init__.py", "tests/test_quantity.py"),
    ),
    (
        "Read recipes from plain text",
        "2026-03-09T09:00:00+00:00",
        ("pantry/recipe.py", "recipes", "tests/test_recipe.py"),
    ),
    (
        "Show a recipe, and say how to use it",
        "2026-03-16T09:00:00+00:00",
        ("README.md", "pantry/__main__.py", "pyproject.toml"),
    ),
)  # message, date, files


@dataclass(frozen=True, slots=True)
class DemoProject:
    """``repository`` is a working copy, ``remote`` the bare repository that it was cloned from and is pushed to."""

    repository: Path
    remote: Path
    commit: str


def create(folder: Path) -> DemoProject:
    """Make ``folder/pantry`` and ``folder/pantry.git``; what is there and whole is left as it is.

    Deterministic: the commits have the same ids everywhere. Raises OSError, or subprocess.CalledProcessError from Git.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    repository, remote = folder / "pantry", folder / "pantry.git"
    if not (repository.is_dir() and remote.is_dir()):
        for part in (repository, remote):
            shutil.rmtree(part, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as draft:
            made = _commit_history(Path(draft) / "pantry")
            _git(None, "clone", "--quiet", "--bare", str(made), str(Path(draft) / "pantry.git"))
            _git(Path(draft) / "pantry.git", "remote", "remove", "origin")
            _git(made, "remote", "add", "origin", str(remote))
            (Path(draft) / "pantry.git").rename(remote)
            made.rename(repository)
    return DemoProject(repository, remote, _git(remote, "rev-parse", f"refs/heads/{BRANCH}"))


def _commit_history(path: Path) -> Path:
    shutil.copytree(SOURCE, path, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".ruff_cache"))
    _git(None, "init", "--quiet", f"--initial-branch={BRANCH}", str(path))
    for message, date, names in _HISTORY:
        _git(path, "add", "--", *names)
        _git(path, "commit", "--quiet", "--no-gpg-sign", "-m", message, date=date)
    return path


def _git(folder: Path | None, *arguments: str, date: str = "") -> str:
    place = ["-C", str(folder)] if folder else []
    found = shutil.which("git")
    path = f"{Path(found).parent}:{os.defpath}" if found else os.defpath
    environment = git_rules.environment(path=path, tmp=tempfile.gettempdir(), global_config="/dev/null")
    if date:
        environment |= {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    done = subprocess.run(
        ["git", *git_rules.FLAGS, *place, *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()
