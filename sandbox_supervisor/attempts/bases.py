"""Compute the commit that an attempt starts from, in the bare repository, without a working tree.

Merges are deterministic: the same commits in the same order give the same commit id. No side is ever picked.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox_supervisor import git


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One commit that goes into a base, and the node that made it."""

    node: str
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A file on which two sides disagree; either commit may lack it. ``path`` is for Git, ``shown`` for everybody."""

    path: str
    ours: Part
    theirs: Part

    @property
    def shown(self) -> str:
        return shown(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """``commit`` holds conflict markers in the files of ``conflicts``, if there are any."""

    commit: str
    conflicts: tuple[Conflict, ...] = ()


def combine(repo: Path, baseline: str, parts: Sequence[Part]) -> Combined:
    """Merge ``parts`` into ``baseline``, in the given order. A part that another one contains costs nothing.

    Raises GitFailed when a commit is missing or the histories have nothing in common.
    """
    current = Part(node="baseline", commit=baseline)
    conflicts: list[Conflict] = []
    for part in parts:
        if _reaches(repo, current.commit, part.commit):
            continue
        if _reaches(repo, part.commit, current.commit):
            current = part
            continue
        tree, paths = _merge_tree(repo, current.commit, part.commit)
        conflicts += [Conflict(path=path, ours=current, theirs=part) for path in paths]
        merged = _commit(repo, tree, [current.commit, part.commit], f"Merge {part.node} into {current.node}")
        current = Part(node=f"{current.node}+{part.node}" if current.node != "baseline" else part.node, commit=merged)
    return Combined(commit=current.commit, conflicts=tuple(conflicts))


def resolve(repo: Path, baseline: str, parts: Sequence[Part], *, theirs: bool) -> str:
    """Merge like ``combine``, taking a whole file from one side wherever two disagree: a person's explicit choice."""
    current = baseline
    for part in parts:
        if _reaches(repo, current, part.commit):
            continue
        if _reaches(repo, part.commit, current):
            current = part.commit
            continue
        tree, paths = _merge_tree(repo, current, part.commit)
        if paths:
            tree = _with_files_of(repo, tree, part.commit if theirs else current, paths)
        current = _commit(repo, tree, [current, part.commit], f"Merge {part.node}, conflicts settled by a person")
    return current


def unresolved(repo: Path, commit: str, paths: Sequence[str]) -> list[str]:
    """Name those of ``paths`` that still hold a conflict marker in ``commit``, as text to show."""
    if not paths:
        return []
    pattern = ["-e", "^<<<<<<< ", "-e", "^>>>>>>> "]
    specs = [f":(literal){path}" for path in sorted(set(paths))]
    found = git.run(repo, "grep", "-z", "-l", "-I", *pattern, commit, "--", *specs, accept=(0, 1))
    names = found.stdout.decode("utf-8", "surrogateescape").split("\0")
    return [shown(name.removeprefix(f"{commit}:")) for name in names if name]


def shown(path: str) -> str:
    """Give a path as text that can be stored: bytes of its name that are no UTF-8 are replaced."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def tree_of(repo: Path, commit: str) -> str:
    """Give the tree id of a commit."""
    return git.run(repo, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}").text


def _reaches(repo: Path, commit: str, ancestor: str) -> bool:
    return git.run(repo, "merge-base", "--is-ancestor", ancestor, commit, accept=(0, 1)).returncode == 0


def _merge_tree(repo: Path, ours: str, theirs: str) -> tuple[str, list[str]]:
    done = git.run(
        repo, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs, accept=(0, 1)
    )
    tree, *paths = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    return tree.strip(), [path for path in paths if path.strip()] if done.returncode else []


def _commit(repo: Path, tree: str, parents: Sequence[str], message: str) -> str:
    dates = git.run(repo, "show", "-s", "--no-show-signature", "--format=%ct", *parents).text.split()
    named = [argument for parent in parents for argument in ("-p", parent)]
    return git.run(repo, "commit-tree", tree, *named, "-m", message, env=git.dated(max(map(int, dates)))).text


def _with_files_of(repo: Path, tree: str, side: str, paths: Sequence[str]) -> str:
    """Give ``tree`` with ``paths`` as they are in ``side``, or without those that ``side`` lacks."""
    specs = [f":(literal){path}" for path in paths]
    entries = git.run(repo, "ls-tree", "-r", "-z", "--full-tree", side, "--", *specs).stdout
    zero = "0" * len(tree)
    gone = b"".join(f"0 {zero}\t{path}\0".encode("utf-8", "surrogateescape") for path in paths)
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index"}
        git.run(repo, "read-tree", tree, env=index)
        git.run(repo, "update-index", "-z", "--index-info", input=gone + entries, env=index)
        return git.run(repo, "write-tree", env=index).text
