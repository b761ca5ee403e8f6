"""Make the sandbox's bare repository at the baseline commit, from a remote that may be hostile, slow or gone."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox_supervisor import git
from sandbox_supervisor.materialise.failure import Failed
from sandbox_supervisor.protocol import git_rules
from sandbox_supervisor.protocol.spec import Repository

BASELINE = "refs/caisson/baseline"
FETCH_LIMIT = 10 * 60.0  # seconds
_INCOMING = "refs/caisson/incoming"
_STAGE = "repository"
_DRAFT = ".repo-"
_HISTORIC = ("zeroPaddedFilemode", "zeroPaddedDate", "badTimezone", "missingSpaceBeforeDate", "missingSpaceBeforeEmail",
             "missingNameBeforeEmail")  # fmt: skip
# Objects are checked on arrival; flaws that only old programs left in author lines and modes are let pass.
_CHECKED = (
    "-c", "fetch.fsckObjects=true",
    *(part for flaw in _HISTORIC for part in ("-c", f"fetch.fsck.{flaw}=ignore")),
)  # fmt: skip
_WORDS = (  # what Git says → code, in this order
    (("shallow",), "source_shallow"),
    (("not our ref", "couldn't find remote ref", "unadvertised object", "no such remote ref"), "baseline_missing"),
    (("fsck", "bad object", "invalid object", "unresolved deltas"), "repository_malformed"),
    (("mismatched algorithms", "object-format", "object format"), "object_format"),
    (
        ("could not read username", "could not read password", "authentication failed", "permission denied",
         "returned error: 403", "host key verification", "terminal prompts disabled", "unable to get password"),
        "auth_required",
    ),
    (("not found", "does not appear to be a git repository", "does not exist"), "repository_not_found"),
    (("could not resolve", "unable to access", "connection refused", "timed out", "unreachable"), "remote_unreachable"),
)  # fmt: skip
_HINTS = {
    "source_shallow": "the repository is a shallow clone; complete it with 'git fetch --unshallow' first",
    "auth_required": "the remote asks for a credential, and none is stored for it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    url: git_rules.RemoteUrl
    commit: str
    ref: str  # "" if unknown


def bring_in(target: Path, repository: Repository) -> None:
    """Make ``target`` a bare repository whose ``refs/caisson/baseline`` is the verified baseline commit.

    Returns at once if it is there already. Submodules and LFS objects are not fetched: their gitlinks and pointers
    stay as they are. Raises Failed with ``url_refused``, ``baseline_malformed``, ``remote_unreachable``,
    ``auth_required``, ``repository_not_found``, ``repository_empty``, ``repository_malformed``, ``source_shallow``,
    ``object_format``, ``baseline_missing`` or ``clone_failed``.
    """
    source = _checked(repository)
    if _has_baseline(target, source.commit):
        return
    for leftover in (target, *target.parent.glob(f"{_DRAFT}*")):  # of a run that was killed
        shutil.rmtree(leftover, ignore_errors=True)  # a Git of that run may still be writing into its own
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=target.parent))
    length = "sha256" if len(source.commit) == 64 else "sha1"
    _git(source, None, "init", "--quiet", "--bare", "--template=", "--initial-branch=caisson",
         f"--object-format={length}", str(draft))  # fmt: skip
    _ask(source)
    _fetch(source, draft)
    _verify(source, draft)
    draft.rename(target)


def _checked(repository: Repository) -> _Source:
    try:
        url = git_rules.parse_url(repository.clone_url)
    except git_rules.UrlRefused as refused:
        raise Failed("url_refused", stage=_STAGE, item=repository.slug, cause=refused.message) from None
    if not git_rules.valid_commit(repository.base_commit):
        raise Failed("baseline_malformed", stage=_STAGE, item=repository.slug, cause="it is no full commit id")
    if url.is_local and not Path(url.path).is_dir():
        raise Failed("repository_not_found", stage=_STAGE, item=url.text, cause="there is no such folder")
    ref = repository.base_ref
    ref = ref if ref.startswith("refs/") or not ref else f"refs/heads/{ref}"
    return _Source(url=url, commit=repository.base_commit, ref=ref if git_rules.valid_ref(ref) else "")


def _has_baseline(target: Path, commit: str) -> bool:
    if not target.is_dir():
        return False
    try:
        return git.run(target, "rev-parse", "--verify", "--quiet", f"{BASELINE}^{{commit}}").text == commit
    except git.GitFailed:
        return False


def _ask(source: _Source) -> None:
    """Find out within ``git_rules.REMOTE_TIMEOUT`` that the remote answers, and that it has something."""
    heads = _git(source, None, "ls-remote", *_other_end(source), "--heads", "--tags", "--quiet", "--end-of-options",
                 source.url.text, timeout=git_rules.REMOTE_TIMEOUT)  # fmt: skip
    if not heads.stdout.strip():
        cause = "it has no branch and no commit" + ("" if source.url.is_local else ", or is no Git repository")
        raise Failed("repository_empty", stage=_STAGE, item=source.url.text, cause=cause)


def _fetch(source: _Source, draft: Path) -> None:
    """Fetch the commit itself; from a server that gives only what its branches name, fetch the branch it was on."""
    try:
        _fetch_one(source, draft, source.commit)
    except Failed as failed:
        if failed.code != "baseline_missing" or not source.ref:
            raise
        _fetch_one(source, draft, source.ref)


def _fetch_one(source: _Source, draft: Path, what: str) -> None:
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", *_other_end(source))
    wanted = ("--end-of-options", source.url.text, f"+{what}:{_INCOMING}")
    done = _git(source, draft, *_CHECKED, "fetch", *options, *wanted, timeout=FETCH_LIMIT)
    if "shallow roots are not allowed" in done.stderr:  # Git only warns, and leaves the reference out
        raise Failed("source_shallow", stage=_STAGE, item=source.url.text, cause=_HINTS["source_shallow"])


def _verify(source: _Source, draft: Path) -> None:
    missing = Failed(
        "baseline_missing",
        stage=_STAGE,
        item=source.commit,
        cause=f"{source.url.text} has no commit {source.commit}" + (f" on {source.ref}" if source.ref else ""),
    )
    if git.run(draft, "cat-file", "-t", source.commit, accept=(0, 1, 128)).text != "commit":
        raise missing
    if git.run(draft, "merge-base", "--is-ancestor", source.commit, _INCOMING, accept=(0, 1, 128)).returncode != 0:
        raise missing
    git.run(draft, "update-ref", BASELINE, source.commit)
    git.run(draft, "update-ref", "-d", _INCOMING)


def _other_end(source: _Source) -> Sequence[str]:
    return (f"--upload-pack={git_rules.UPLOAD_PACK}",) if source.url.is_local else ()


def _git(source: _Source, repo: Path | None, *args: str, timeout: float = git.TIMEOUT) -> git.Completed:
    protocol = "file" if source.url.is_local else source.url.kind.value
    try:
        return git.run(
            repo,
            *("-c", "http.followRedirects=false", "-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=20"),
            *args,
            timeout=timeout,
            safe=[Path(source.url.path)] if source.url.is_local else [],
            env={"GIT_ALLOW_PROTOCOL": protocol},
        )
    except git.GitFailed as failed:
        raise _failure(source, failed) from None


def _own_words(stderr: str, url: str) -> str:
    """Give what Git itself said: without the address, which may hold any word, and without what the remote said."""
    lines = [line for line in stderr.splitlines() if not line.startswith("remote:")]
    return "\n".join(lines).replace(url, "").lower()


def _failure(source: _Source, failed: git.GitFailed) -> Failed:
    said = _own_words(failed.stderr, source.url.text)
    if failed.code == "timeout":
        code = "remote_unreachable"
    else:
        code = next((code for words, code in _WORDS if any(word in said for word in words)), "clone_failed")
    cause = "; ".join(filter(None, [_HINTS.get(code), failed.stderr.strip() or failed.message]))
    return Failed(code, stage=_STAGE, item=source.url.text, cause=cause)
