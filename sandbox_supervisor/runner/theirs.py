"""Look into the attempt's own ``.git`` without letting Git read it: its config, hooks and links belong to the agent."""

import os
import re
import stat
from pathlib import Path

from sandbox_supervisor.protocol.git_rules import valid_commit
from sandbox_supervisor.runner import artefacts, files
from sandbox_supervisor.runner.link import RunnerRefused

_HOPS = 5
_REF_LIMIT = 4096
_PACKED_LIMIT = 16 * 1024 * 1024
_REF = re.compile(r"ref: (refs/[^\x00-\x20\x7f~^:?*\[\\]+)\s*\Z")


def head_of(tree: Path) -> str | None:
    """Give the commit id that HEAD stands for; None for an unborn branch or anything out of the ordinary."""
    name = "HEAD"
    for _ in range(_HOPS):
        text = _read(tree, name, _REF_LIMIT)
        if text is None:
            return _packed(tree, name)
        if valid_commit(text.strip()):
            return text.strip()
        if not (match := _REF.match(text)):
            return None
        name = match[1]
    return None


def _packed(tree: Path, name: str) -> str | None:
    for line in (_read(tree, "packed-refs", _PACKED_LIMIT) or "").splitlines():
        commit, _, ref = line.partition(" ")
        if ref == name and valid_commit(commit):
            return commit
    return None


def _read(tree: Path, name: str, limit: int) -> str | None:
    """Give a whole file; None if it is not there, or longer than ``limit``: its beginning could say something else."""
    try:
        with files.opened_file(tree, f".git/{name}") as fd:
            data = os.pread(fd, limit + 1, 0)
    except RunnerRefused:
        return None
    return data.decode("utf-8", "replace") if len(data) <= limit else None


def objects_of(tree: Path, repo: Path) -> Path | None:
    """Give the attempt's object folder if Git may read it: plain files only, and no alternates but the one we wrote."""
    if (_read(tree, "objects/info/alternates", _REF_LIMIT) or "").rstrip("\n") != f"{repo}/objects":
        return None
    try:
        plain = all(stat.S_ISREG(mode) for _, mode, _ in artefacts.walk(tree, ".git/objects"))
    except RunnerRefused:
        return None
    return tree / ".git" / "objects" if plain else None
