"""Ask remotes questions: who may be asked, within which time, and what their refusals mean."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sandbox_supervisor.protocol import git_rules
from sandbox_supervisor.protocol.git_rules import RemoteUrl, UrlKind
from tasks_app import git
from workspaces_app.errors import Refused, Unavailable
from workspaces_app.models import Workspace
from workspaces_app.remotes import addresses_of
from workspaces_app.services.repositories import checked_address

REFS_LIMIT = 32 * 1024 * 1024  # bytes of an ls-remote answer
DEFAULT_PORTS = {UrlKind.HTTP: 80, UrlKind.HTTPS: 443}


class RemoteProblem(Exception):
    """A remote cannot be used. ``code`` is a stable word; ``transient``: a later try may succeed by itself."""

    def __init__(self, code: str, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.transient = transient


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """An address that may be used, and the flags that pin it to the addresses that were checked."""

    url: RemoteUrl
    flags: tuple[str, ...] = ()

    @property
    def safe(self) -> tuple[str, ...]:
        return (self.url.path,) if self.url.is_local else ()


def open_remote(address: str, *, workspace: Workspace) -> Remote:
    """Check an address by the rules of its workspace, now, and pin it. Raises RemoteProblem.

    The host is looked up once: what was checked is where the connection goes, whatever a second look-up would say.
    """
    found: list[str] = []

    def resolve(host: str) -> Collection[str]:
        found.extend(addresses_of(host))
        return found

    try:
        url = git_rules.parse_url(checked_address(workspace, address, resolve=resolve))
    except Unavailable as unavailable:
        raise RemoteProblem(unavailable.code, unavailable.message, transient=True) from None
    except Refused as refused:
        code = "remote_missing" if refused.code == "path_missing" else refused.code
        raise RemoteProblem(code, refused.message) from None
    return Remote(url=url, flags=_pinned(url, found))


def _pinned(url: RemoteUrl, addresses: Sequence[str]) -> tuple[str, ...]:
    port = url.port or DEFAULT_PORTS.get(url.kind)
    if port is None or not addresses:
        return ()
    shown = ",".join(f"[{address}]" if ":" in address else address for address in sorted(addresses))
    return ("-c", f"http.curloptResolve={url.host}:{port}:{shown}")


def ls_remote(remote: Remote, *patterns: str, timeout: float = git_rules.REMOTE_TIMEOUT) -> dict[str, str]:
    """Give ref name → commit id of what ``remote`` shows now; peeled tags end in ``^{}``. Raises RemoteProblem."""
    return _refs(_listing(remote, *patterns, timeout=timeout))


def default_branch(remote: Remote) -> tuple[str, str] | None:
    """Give the ref that the remote's HEAD names (``HEAD`` when it names none), and its commit; None: no commit."""
    text = _listing(remote, "HEAD", timeout=git_rules.REMOTE_TIMEOUT)
    commit = _refs(text).get("HEAD")
    if commit is None:
        return None
    named = next(
        (line.split("\t")[0].removeprefix("ref: ") for line in text.splitlines() if line.startswith("ref: ")), ""
    )
    return (named if git_rules.valid_ref(named) else "HEAD"), commit


def _listing(remote: Remote, *patterns: str, timeout: float) -> str:
    try:
        completed = git.run(
            *remote.flags,
            "ls-remote",
            "--symref",
            f"--upload-pack={git_rules.UPLOAD_PACK}" if remote.url.is_local else "--quiet",
            "--end-of-options",
            remote.url.text,
            *patterns,
            safe=remote.safe,
            timeout=timeout,
            limit=REFS_LIMIT,
        )
    except git.GitFailed as failure:
        raise problem_of(failure, remote) from failure
    return completed.text


def _refs(text: str) -> dict[str, str]:
    refs = {}
    for line in text.splitlines():
        commit, _, name = line.partition("\t")
        if git_rules.valid_commit(commit):
            refs[name] = commit
    return refs


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What one kind of complaint means. ``signs`` are regular expressions over Git's own words."""

    code: str
    hint: str
    signs: tuple[str, ...]
    transient: bool = False

    def matches(self, text: str) -> bool:
        return any(re.search(sign, text, re.IGNORECASE) for sign in self.signs)


_MEANINGS = (
    _Meaning(
        "remote_auth",
        "It asks for a password, and nobody is prompted for one. Use an address that this machine may use as it is.",
        ("could not read (username|password)", "terminal prompts disabled", "authentication failed", r"error: 401",
         r"permission denied \("),
    ),
    _Meaning("remote_auth", "Its host key is not known to this machine.", ("host key verification failed",)),
    _Meaning("remote_forbidden", "It refuses access.", ("error: 403", "forbidden", "denied to", "not allowed to push")),
    _Meaning("remote_redirects", "Register the address that it redirects to.", (r"error: 30\d", "from redirection")),
    _Meaning("remote_unavailable", "It has trouble of its own.", (r"error: (5\d\d|429)",), transient=True),
    _Meaning(
        "remote_unreachable",
        "It could not be reached.",
        ("could not resolve", "connection (refused|reset|timed out|closed)", "failed to connect", "couldn.t connect",
         "operation (too slow|timed out)", "network is unreachable", "no route to host", "unexpected disconnect",
         "early eof", "hung up", "rpc failed", "empty reply", "gnutls", r"\bssl"),
        transient=True,
    ),
    _Meaning(
        "remote_missing",
        "There is no Git repository, or it may not be seen.",
        ("not found", "does not exist", "does not appear to be a git repository", "error: 404", "info/refs not valid"),
    ),
)  # fmt: skip


def problem_of(failure: git.GitFailed, remote: Remote) -> RemoteProblem:
    """Say what a failed call with a remote means."""
    place = remote.url.text
    if failure.code == "timeout":
        return RemoteProblem("remote_timeout", f"{place} did not answer in time.", transient=True)
    if failure.code == "too_big":
        return RemoteProblem("remote_too_big", f"{place} answered more than is allowed.")
    for meaning in _MEANINGS:
        if meaning.matches(failure.stderr):
            text = f"{place}: {meaning.hint} ({last_line(failure.stderr)})"
            return RemoteProblem(meaning.code, text, transient=meaning.transient)
    return RemoteProblem("remote_failed", f"{place}: {last_line(failure.stderr)}", transient=True)


def last_line(text: str) -> str:
    """Give the line of a complaint that says most, at most 300 characters of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "!"))]
    return ((telling or lines or ["no reason given"])[-1])[:300]
