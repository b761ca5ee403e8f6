"""Keep a bare copy of what tasks start from, one per remote: a cache that any worker can build again from nothing."""

import shutil
from hashlib import sha256
from pathlib import Path

from django.conf import settings

from sandbox_supervisor.protocol import git_rules
from tasks_app import git
from tasks_app.remotes import Remote, RemoteProblem, problem_of
from tasks_app.services.delivery import limits


def lease_name(address: str) -> str:
    """Give the name of the lease that whoever writes to the mirror or pushes to its remote holds."""
    return f"mirror:{_key(address)}"


def folder(address: str) -> Path:
    return Path(settings.STATE_DIR) / "mirrors" / f"{_key(address)}.git"


def _key(address: str) -> str:
    return sha256(address.encode()).hexdigest()[:32]


def prepare(remote: Remote, *, commit: str, ref: str) -> Path:
    """Give a mirror that holds ``commit`` with all its history; ``ref`` is where the remote had it.

    A damaged mirror is thrown away and built again, once. Its caller holds the lease. Raises RemoteProblem.
    """
    path = folder(remote.url.text)
    if not _holds(path, commit):
        _fill(path, remote, commit=commit, ref=ref)
    if _holds(path, commit):
        return path
    shutil.rmtree(path, ignore_errors=True)
    _fill(path, remote, commit=commit, ref=ref)
    if not _holds(path, commit):
        raise RemoteProblem("baseline_missing", f"{remote.url.text} no longer has the commit {commit[:12]}.")
    return path


def _holds(path: Path, commit: str) -> bool:
    """Say whether the commit and its whole history are there: a fetch writes its ref last, so a ref means whole."""
    if not (path / "objects").is_dir():
        return False
    try:
        found = git.run("for-each-ref", f"--contains={commit}", "--count=1", repo=path, accept=(0, 129))
    except git.GitFailed:
        return False
    return bool(found.text)


def _fill(path: Path, remote: Remote, *, commit: str, ref: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        _initialise(path, commit)
        _fetch(path, remote, ref or commit)
    except (git.GitFailed, RemoteProblem):
        shutil.rmtree(path, ignore_errors=True)
        _initialise(path, commit)
        _fetch(path, remote, ref or commit)
    if not _holds(path, commit):  # the branch has moved away from it: ask for the commit itself
        _fetch(path, remote, commit)


def _initialise(path: Path, commit: str) -> None:
    form = "sha256" if len(commit) == 64 else "sha1"
    git.run("init", "--quiet", "--bare", "--template=", f"--object-format={form}", "--end-of-options", str(path))


def _fetch(path: Path, remote: Remote, wanted: str) -> None:
    if not (wanted == "HEAD" or git_rules.valid_ref(wanted) or git_rules.valid_commit(wanted)):
        raise RemoteProblem("ref_malformed", "The name of the baseline's branch is not allowed.")
    try:
        git.run(
            *remote.flags,
            "fetch",
            *("--quiet", "--force", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"),
            *((f"--upload-pack={git_rules.UPLOAD_PACK}",) if remote.url.is_local else ()),
            "--end-of-options",
            remote.url.text,
            f"+{wanted}:refs/mirror/{_key(wanted)}",
            repo=path,
            safe=remote.safe,
            timeout=limits.FETCH_TIMEOUT,
        )
    except git.GitFailed as failure:
        raise problem_of(failure, remote) from failure
