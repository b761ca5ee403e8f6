"""Ask the remote where the work starts and whether the branch for its result is free."""

import re
import unicodedata
from dataclasses import dataclass

from sandbox_supervisor.protocol import git_rules
from tasks_app.errors import BaselineRefused, Unavailable
from tasks_app.remotes import Remote, RemoteProblem, default_branch, ls_remote, open_remote
from workspaces_app.models import Repository, Workspace

SLUG_LENGTH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """``ref`` is where ``commit`` was found: a hint for servers that refuse to send a bare commit id."""

    commit: str
    ref: str


def resolve_baseline(remote: Remote, repository: Repository, base: str) -> Baseline:
    """Find the commit that ``base`` names on the remote now. Raises BaselineRefused, Unavailable."""
    wanted = base or repository.default_branch
    if git_rules.valid_commit(wanted):
        return _by_commit(remote, wanted)
    if not wanted:
        return _by_default(remote)
    name = wanted.removeprefix("refs/heads/").removeprefix("refs/tags/")
    if not git_rules.valid_branch(name):
        raise BaselineRefused(f"{wanted!r} is no name of a branch or tag.", code="base_malformed", pointer="/base")
    candidates = [f"refs/heads/{name}", f"refs/tags/{name}^{{}}", f"refs/tags/{name}"]
    return _by_names(remote, [ref for ref in candidates if ref.startswith(_prefix(wanted))], wanted)


def _prefix(wanted: str) -> str:
    return next((prefix for prefix in ("refs/heads/", "refs/tags/") if wanted.startswith(prefix)), "refs/")


def _by_default(remote: Remote) -> Baseline:
    try:
        found = default_branch(remote)
    except RemoteProblem as problem:
        raise _translated(problem) from None
    if found is not None:
        return Baseline(ref=found[0], commit=found[1])
    if not _ask(remote):
        raise _empty(remote)
    raise BaselineRefused(
        f"The default branch of {remote.url.text} has no commit; name a branch.", code="base_missing", pointer="/base"
    )


def _empty(remote: Remote) -> BaselineRefused:
    return BaselineRefused(
        f"{remote.url.text} is empty: it has no commit. Make a first one there, then try again.",
        code="repository_empty",
    )


def _by_names(remote: Remote, candidates: list[str], shown: str) -> Baseline:
    refs = _ask(remote, *candidates)
    for ref in candidates:
        if ref in refs:
            return Baseline(commit=refs[ref], ref=ref.removesuffix("^{}"))
    if not refs and not _ask(remote):
        raise _empty(remote)
    raise BaselineRefused(
        f"{remote.url.text} has no branch or tag {shown!r}.", code="base_missing", base=shown, pointer="/base"
    )


def _by_commit(remote: Remote, commit: str) -> Baseline:
    for ref, found in _ask(remote).items():
        if found == commit:
            return Baseline(commit=commit, ref=ref.removesuffix("^{}"))
    raise BaselineRefused(
        f"No branch or tag of {remote.url.text} points at {commit}; name a branch, or a tag.",
        code="base_missing",
        base=commit,
        pointer="/base",
    )


def check_branch(remote: Remote, branch: str) -> None:
    """Make sure that the task branch can be made on the remote. Raises BaselineRefused, Unavailable."""
    if not git_rules.valid_branch(branch):
        raise BaselineRefused(
            f"{branch!r} is no branch name that may be used.", code="branch_malformed", pointer="/task_branch"
        )
    parts = branch.split("/")
    above = ["/".join(parts[:length]) for length in range(1, len(parts))]
    patterns = [f"refs/heads/{name}" for name in (*above, branch)]
    taken = sorted(_ask(remote, *patterns, f"refs/heads/{branch}/*"))
    own = [ref for ref in taken if ref in patterns or ref.startswith(f"refs/heads/{branch}/")]
    if own:
        raise BaselineRefused(
            f"The branch {branch} cannot be made: {own[0].removeprefix('refs/heads/')} is there.",
            code="branch_taken",
            pointer="/task_branch",
        )


def open_for(address: str, workspace: Workspace) -> Remote:
    """Check an address by the workspace's rules. Raises BaselineRefused, Unavailable."""
    try:
        return open_remote(address, workspace=workspace)
    except RemoteProblem as problem:
        raise _translated(problem) from None


def _ask(remote: Remote, *patterns: str) -> dict[str, str]:
    try:
        return ls_remote(remote, *patterns)
    except RemoteProblem as problem:
        raise _translated(problem) from None


def _translated(problem: RemoteProblem) -> BaselineRefused | Unavailable:
    kind = Unavailable if problem.transient else BaselineRefused
    return kind(problem.message, code=problem.code)


def made_up_branch(title: str, task_id: str) -> str:
    """Give ``caisson/<slug of the title>-<last letters of the id>``."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:SLUG_LENGTH].strip("-")
    return f"caisson/{slug or 'task'}-{task_id[-6:]}"
