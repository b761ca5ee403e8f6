"""Take an attempt's commit into ``repo``: checked objects, descendants of its base, under a ref of its own."""

from pathlib import Path

from sandbox_supervisor import git
from sandbox_supervisor.attempts.bases import tree_of
from sandbox_supervisor.graph.rows import AttemptId
from sandbox_supervisor.protocol.git_rules import valid_commit
from sandbox_supervisor.runner.link import CommittedTree

PACK_LIMIT = 512 * 1024 * 1024


class Refused(Exception):  # the word for it everywhere in the supervisor
    """The commit may not enter ``repo``. ``code`` is a stable word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def ref_of(attempt: AttemptId, *, wip: bool = False) -> str:
    """Name the ref that keeps an attempt's commit."""
    return f"refs/attempts/{attempt.node}/{attempt.generation}/{attempt.n}{'-wip' if wip else ''}"


def take(repo: Path, attempt: AttemptId, committed: CommittedTree, *, base: str, wip: bool = False) -> str:
    """Store what an attempt committed and give its tree id. Repeating is safe.

    Raises Refused for broken objects, a commit that does not descend from ``base``, or too much of it.
    """
    if not valid_commit(committed.commit):
        raise Refused("commit_malformed", "The runner named no full commit id.")
    if committed.commit != base:
        _unpack(repo, committed.pack)
        _check(repo, committed.commit, base)
    git.run(repo, "update-ref", ref_of(attempt, wip=wip), committed.commit)
    return tree_of(repo, committed.commit)


def _unpack(repo: Path, pack: bytes) -> None:
    if len(pack) > PACK_LIMIT:
        raise Refused("pack_too_big", f"The attempt changed {len(pack)} bytes; {PACK_LIMIT} are allowed.")
    if not pack:
        return
    try:
        git.run(repo, "index-pack", "--stdin", "--fix-thin", "--strict", "--fsck-objects", input=pack)
    except git.GitFailed as failed:
        raise Refused("objects_refused", f"The attempt's objects did not pass the check: {failed.message}") from None


def _check(repo: Path, commit: str, base: str) -> None:
    try:
        descends = git.run(repo, "merge-base", "--is-ancestor", base, commit, accept=(0, 1)).returncode == 0
        git.run(repo, "rev-list", "--objects", "--quiet", commit, "--not", base)
    except git.GitFailed as failed:
        raise Refused("objects_missing", f"The attempt's commit is not whole: {failed.message}") from None
    if not descends:
        raise Refused("not_a_descendant", f"The attempt's commit {commit} does not descend from its base {base}.")
