"""Name what a local work tree holds that is not committed: the task will not see it.

Nothing of the repository's own configuration is read and none of its programs run: a copy of its index is compared from
an empty repository of ours.
"""

import shutil
import tempfile
from pathlib import Path

import structlog

from tasks_app import git

log = structlog.get_logger()

TIMEOUT = 10.0  # seconds
INDEX_LIMIT = 64 * 1024 * 1024  # bytes
NAMED = 3


def uncommitted(path: Path) -> str:
    """Give a sentence that names what is not committed in ``path``; empty when there is nothing, or no work tree."""
    folder = path / ".git"
    if folder.is_symlink() or not folder.is_dir():
        return ""
    try:
        names = _names(path, folder)
    except (OSError, git.GitFailed) as error:
        log.info("work_tree_not_compared", error=type(error).__name__)
        return ""
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"Not committed, so not part of the task: {', '.join(names[:NAMED])}{more}."


def _names(path: Path, folder: Path) -> list[str]:
    index = folder / "index"
    if not index.is_file() or index.is_symlink() or index.stat().st_size > INDEX_LIMIT:
        return []
    with tempfile.TemporaryDirectory(prefix="caisson-index-") as scratch:
        ours = Path(scratch) / "repo"
        git.run("init", "--quiet", "--bare", str(ours), timeout=TIMEOUT)
        shutil.copy2(index, ours / "index")  # with its time, by which Git knows entries that it must read again
        head = _head(path)
        (ours / "objects" / "info").mkdir(exist_ok=True)
        (ours / "objects" / "info" / "alternates").write_text(f"{folder / 'objects'}\n", encoding="utf-8")
        tree = ("-c", "core.bare=false", f"--work-tree={path}", "-C", str(path))
        git.run(*tree, "update-index", "-q", "--refresh", repo=ours, timeout=TIMEOUT, accept=(0, 1))
        found = _listed(ours, *tree, "diff-files", "--name-only", "-z", "--ignore-submodules=all")
        found |= _listed(ours, *tree, "ls-files", "--others", "--exclude-standard", "-z")
        if head:
            found |= _listed(ours, "diff-index", "--cached", "--name-only", "-z", "--ignore-submodules=all", head)
    return sorted(found)


def _head(path: Path) -> str:
    said = git.run("ls-remote", "--quiet", "--end-of-options", str(path), "HEAD", safe=(str(path), str(path / ".git")))
    return said.text.partition("\t")[0]


def _listed(repo: Path, *args: str) -> set[str]:
    raw = git.run(*args, repo=repo, timeout=TIMEOUT).stdout
    return {name.decode("utf-8", "replace") for name in raw.split(b"\0") if name}
