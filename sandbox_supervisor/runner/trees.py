"""Make an attempt's tree: a shared clone of its own, and a Git directory of ours that the attempt never sees."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from sandbox_supervisor import git
from sandbox_supervisor.protocol.git_rules import valid_commit
from sandbox_supervisor.runner.children import children
from sandbox_supervisor.runner.folders import Folder
from sandbox_supervisor.runner.link import RunnerRefused

CLONE_TIME = 600.0
INDEX = "base-index"
_OURS = frozenset({"HEAD", "config", "objects", "refs", "shallow", INDEX, "index", "pack", "diff"})
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
_CONFIG_SHA256 = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n"


def prepare(folder: Folder, repo: Path, base_commit: str) -> str:
    """Make the folder with a tree that is detached at ``base_commit``; give the verified HEAD.

    A folder that is complete is left alone; one that was interrupted is made anew. Raises RunnerRefused, GitFailed.
    """
    if not valid_commit(base_commit):
        raise RunnerRefused("bad_commit", f"{base_commit[:80]!r} is not a full commit id")
    if not folder.path.exists():
        _build(folder, repo, base_commit)
    with children.call():
        head = git.run(folder.git, "rev-parse", "--verify", "refs/caisson/base^{commit}").text
    if head != base_commit:
        raise RunnerRefused("wrong_base", f"the tree stands at {head}, not at {base_commit}")
    return head


def _build(folder: Folder, repo: Path, base_commit: str) -> None:
    """Build beside its place and move it there whole, so that what stands in place is complete."""
    made = Folder(folder.path.with_name(f".{folder.path.name}.new"))
    shutil.rmtree(made.path, ignore_errors=True)
    for path in (made.path, made.home, made.tmp, made.artefacts):
        path.mkdir(mode=0o700, parents=True)
    with children.call():
        _make_ours(made, repo, base_commit)
        _make_theirs(made, repo, base_commit)
    made.path.rename(folder.path)


def _make_ours(folder: Folder, repo: Path, base_commit: str) -> None:
    kind = "sha256" if len(base_commit) == 64 else "sha1"
    git.run(None, "init", "-q", "--bare", "--template=", f"--object-format={kind}", str(folder.git))
    restore(folder, repo, base_commit)
    with suppress(FileNotFoundError):
        shutil.copyfile(repo / "shallow", folder.git / "shallow")
    found = git.run(folder.git, "cat-file", "-t", base_commit, accept=(0, 128))
    if found.returncode != 0 or found.text != "commit":
        raise RunnerRefused("unknown_commit", f"{base_commit} is not a commit of the repository")
    git.run(folder.git, "update-ref", "refs/caisson/base", base_commit)


def restore(folder: Folder, repo: Path, commit: str) -> None:
    """Put our Git directory back to what it must be: its own settings, and nothing in it that we did not put there.

    Without isolation an attempt could have found and changed it; nobody but this runner has a use for any change.
    """
    for path in list(folder.git.iterdir()):
        if path.is_symlink() or path.name not in _OURS:
            _remove(path)
    config = _CONFIG_SHA256 if len(commit) == 64 else _CONFIG
    for name, text in {"config": config, "objects/info/alternates": f"{repo}/objects\n"}.items():
        path = folder.git / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _make_theirs(folder: Folder, repo: Path, base_commit: str) -> None:
    """Clone without files, write HEAD, and fill the tree through our Git directory, whose config defines no filter."""
    git.run(
        None, "clone", "-q", "--shared", "--no-checkout", "--no-tags", "--template=", str(repo), str(folder.tree),
        safe=(repo,), timeout=CLONE_TIME,
    )  # fmt: skip
    theirs = folder.tree / ".git"
    git.run(theirs, "update-ref", "--no-deref", "HEAD", base_commit, safe=(repo,))
    index = folder.git / INDEX
    git.run(
        folder.git, "read-tree", "-u", "--reset", base_commit,
        work_tree=folder.tree, env={"GIT_INDEX_FILE": str(index)}, timeout=CLONE_TIME,
    )  # fmt: skip
    shutil.copy2(index, theirs / "index")  # with its time: Git takes files no older than their index for suspects
    os.chmod(folder.tree, 0o700)  # noqa: PTH101
