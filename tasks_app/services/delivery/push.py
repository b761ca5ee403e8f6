"""Push one commit to one branch, and believe only what the remote shows afterwards."""

from dataclasses import dataclass
from pathlib import Path

from sandbox_supervisor.protocol import git_rules
from tasks_app import git
from tasks_app.remotes import Remote, RemoteProblem, ls_remote, problem_of
from tasks_app.services.delivery import limits


class PushConflict(Exception):
    """The branch holds neither the old nor the new commit: a person decides, nothing is forced."""

    def __init__(self, branch: str, *, expected: str, found: str) -> None:
        super().__init__(branch)
        self.message = (
            f"The branch {branch} on the remote holds {found[:12] or 'nothing'}, not {expected[:12] or 'nothing'} as "
            "expected: somebody else has changed it. Move or remove that branch, then rerun the delivery node."
        )
        self.facts = {"branch": branch, "expected": expected, "found": found}


class PushRefused(Exception):
    """The remote answered and said no; trying again the same way will not help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """``expected`` is what the branch must hold now; empty: it must not exist.

    ``ours`` are commits that the task pushed before without ever learning whether they arrived.
    """

    branch: str
    commit: str
    expected: str
    ours: frozenset[str] = frozenset()


def carry_out(push: Push, remote: Remote, *, mirror: Path, objects: git.Objects) -> None:
    """Bring the branch to the commit; return only when the remote has shown it there.

    Safe to repeat after any loss of an answer: remote = new is done, = expected or one of ours is pushed (again),
    anything else is PushConflict. Raises PushRefused for a final no, and RemoteProblem for what may pass.
    """
    if not git_rules.valid_branch(push.branch):
        raise PushRefused("branch_malformed", "The name of the task branch is not allowed.")
    found = _look(push, remote)
    if found == push.commit:
        return
    problem = _try(push, found, remote, mirror, objects)
    if _look(push, remote) == push.commit:
        return
    raise problem or RemoteProblem(
        "push_not_seen", "The remote took the push, but does not show it yet.", transient=True
    )


def _look(push: Push, remote: Remote) -> str:
    """Give what the branch holds. Raises PushConflict for what this task has not put there."""
    ref = f"refs/heads/{push.branch}"
    found = ls_remote(remote, ref).get(ref, "")
    if found not in {push.commit, push.expected, *push.ours}:
        raise PushConflict(push.branch, expected=push.expected, found=found)
    return found


def _try(
    push: Push, old: str, remote: Remote, mirror: Path, objects: git.Objects
) -> PushRefused | RemoteProblem | None:
    """Push exactly one refspec under a lease on ``old``; give what went wrong instead of raising it."""
    ref = f"refs/heads/{push.branch}"
    try:
        done = git.run(
            *remote.flags,
            "push",
            *("--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--no-signed"),
            *((f"--receive-pack={git_rules.RECEIVE_PACK}",) if remote.url.is_local else ()),
            f"--force-with-lease={ref}:{old}",
            "--end-of-options",
            remote.url.text,
            f"{push.commit}:{ref}",
            repo=mirror,
            objects=objects,
            safe=remote.safe,
            timeout=limits.PUSH_TIMEOUT,
            accept=(0, 1),
        )
    except git.GitFailed as failure:
        return problem_of(failure, remote)
    if done.returncode == 0:
        return None
    return _refusal(done) or problem_of(
        git.GitFailed("failed", "git push failed", returncode=1, stderr=done.stderr), remote
    )


NOT_WRITABLE = "The user that runs Caisson may not write there. Make it writable, or name another place to push to."
# What a remote says about a ref that it does not take → our word and what to do.
_REFUSALS = (
    ("branch is currently checked out", "branch_checked_out",
     "The remote is not bare and has this branch checked out, so it refuses the push. Check out another branch there."),
    ("failed to update ref", "branch_in_the_way", "Another branch of the remote is in the way of this branch's name."),
    ("non-fast-forward", "push_declined", "The remote forbids replacing what the task delivered before."),
    ("protected branch", "branch_protected", "The remote protects this branch."),
    ("hook declined", "push_declined", "A rule of the remote declined the push."),
    ("unable to create temporary object directory", "remote_forbidden", NOT_WRITABLE),
    ("insufficient permission for adding an object", "remote_forbidden", NOT_WRITABLE),
    ("workflow", "push_needs_scope", "The remote asks for the workflow scope."),
    ("", "push_declined", "The remote refused the push."),
)  # fmt: skip


def _refusal(done: git.Completed) -> PushRefused | None:
    """Read the line of the porcelain output that says ``[remote rejected]``; None when the remote did not decide."""
    rejected = [line for line in done.text.splitlines() if line.startswith("!") and "[remote rejected]" in line]
    if not rejected:
        return None
    reason = rejected[0].split("[remote rejected]", 1)[1].strip()
    for sign, code, hint in _REFUSALS:
        if sign in reason or (sign and sign in done.stderr):
            said = "; ".join(dict.fromkeys([reason, *_remote_lines(done.stderr)]))
            return PushRefused(code, f"{hint} {said}"[:600])
    return None


def _remote_lines(stderr: str) -> list[str]:
    lines = [line.removeprefix("remote:").strip() for line in stderr.splitlines() if line.startswith("remote:")]
    return [line for line in lines if line][-3:]
