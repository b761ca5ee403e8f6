"""Ask remotes questions: who may be asked, within which time, and what their refusals mean."""

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from sandbox_supervisor.protocol import git_rules
from sandbox_supervisor.protocol.git_rules import RemoteUrl, UrlKind
from tasks_app import git

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


def open_remote(address: str) -> Remote:
    """Check an address against the rules. Raises RemoteProblem.

    A host that resolves to a private address is refused unless ``CAISSON_PRIVATE_REMOTES`` names it; plain ``http`` is
    for such named hosts only. The addresses found are pinned, so that a second look-up cannot lead elsewhere.
    """
    try:
        url = git_rules.parse_url(address)
    except git_rules.UrlRefused as refusal:
        raise RemoteProblem(refusal.code, refusal.message) from None
    if url.is_local:
        return _local(url)
    trusted = url.host in {host.lower() for host in settings.PRIVATE_REMOTES}
    if url.kind is UrlKind.HTTP and not trusted:
        raise RemoteProblem("url_scheme", f"Use https for {url.host}; http is for hosts in CAISSON_PRIVATE_REMOTES.")
    addresses = _resolve(url)
    if not trusted:
        _refuse_private(url, addresses)
    return Remote(url=url, flags=_pinned(url, addresses))


def _local(url: RemoteUrl) -> Remote:
    path = Path(url.path)
    if not path.is_dir():
        raise RemoteProblem("remote_missing", f"There is no repository at {path}.")
    return Remote(url=url)


def _resolve(url: RemoteUrl) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(url.host, url.port or DEFAULT_PORTS.get(url.kind, 22), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RemoteProblem(
            "remote_unreachable", f"The host {url.host} was not found: {error}.", transient=True
        ) from None
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _refuse_private(url: RemoteUrl, addresses: Sequence[str]) -> None:
    if any(not ipaddress.ip_address(address.split("%")[0]).is_global for address in addresses):
        raise RemoteProblem(
            "remote_private",
            f"{url.host} is on a private address. Name it in CAISSON_PRIVATE_REMOTES if it is meant.",
        )


def _pinned(url: RemoteUrl, addresses: Sequence[str]) -> tuple[str, ...]:
    port = url.port or DEFAULT_PORTS.get(url.kind)
    if port is None:
        return ()
    shown = ",".join(f"[{address}]" if ":" in address else address for address in addresses)
    return ("-c", f"http.curloptResolve={url.host}:{port}:{shown}")


def ls_remote(remote: Remote, *patterns: str, timeout: float = git_rules.REMOTE_TIMEOUT) -> dict[str, str]:
    """Give ref name → commit id of what ``remote`` shows now; peeled tags end in ``^{}``. Raises RemoteProblem."""
    try:
        completed = git.run(
            *remote.flags,
            "ls-remote",
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
    return _refs(completed.text)


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
        "There is no repository, or it may not be seen.",
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
