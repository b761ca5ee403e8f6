"""Make the bundle that carries a delivery out of the sandbox."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from sandbox_supervisor import git


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    path: Path
    digest: str  # sha256:<hex>
    size: int


def bundle(repo: Path, folder: Path, *, base: str, commit: str, branch: str) -> Bundle:
    """Pack everything between ``base`` and ``commit`` as ``refs/heads/<branch>``. Repeating gives the same file.

    Raises GitFailed, also when there is nothing between them.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{commit}.bundle"
    if not path.exists():
        keep(repo, commit, branch)
        half = folder / f".{commit}.half"
        git.run(repo, "-c", "pack.threads=1", "bundle", "create", "-q", str(half), f"^{base}", f"refs/heads/{branch}")
        with half.open("rb") as written:
            os.fsync(written.fileno())
        half.replace(path)
    with path.open("rb") as made:
        digest = hashlib.file_digest(made, "sha256").hexdigest()
    return Bundle(path=path, digest=f"sha256:{digest}", size=path.stat().st_size)


def keep(repo: Path, commit: str, branch: str) -> None:
    """Point the task branch of ``repo`` at ``commit``."""
    git.run(repo, "update-ref", f"refs/heads/{branch}", commit)
