"""What every Git call obeys on both sides of a sandbox's border: environment, flags, outcome, names, addresses. Pure.

The two runners, ``sandbox_supervisor.git`` and ``tasks_app.git``, start processes; what they must agree on stands here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from urllib.parse import urlsplit

FLAGS = (
    "-c", "core.fsmonitor=false",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.alternateRefsCommand=true",
    "-c", "core.attributesFile=/dev/null",
    "-c", "protocol.ext.allow=never",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
    "-c", "credential.helper=",
    "-c", "http.followRedirects=false",
    "-c", "http.lowSpeedLimit=1",
    "-c", "http.lowSpeedTime=20",
    "-c", "submodule.recurse=false",
    "-c", "advice.detachedHead=false",
)  # fmt: skip

# Flags do not reach the other end of a transfer with a local path, so that end is named with its own. Nothing that the
# other repository configures may run: no hook, no fsmonitor, no update of its checked-out files (which runs filters).
_OTHER_END = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.alternateRefsCommand=true -c gc.auto=0"
RECEIVE_PACK = f"{_OTHER_END} -c receive.autogc=false -c receive.denyCurrentBranch=refuse receive-pack"
UPLOAD_PACK = f"{_OTHER_END} upload-pack"

AUTHOR = {
    "GIT_AUTHOR_NAME": "Caisson",
    "GIT_AUTHOR_EMAIL": "noreply@caisson.invalid",
    "GIT_COMMITTER_NAME": "Caisson",
    "GIT_COMMITTER_EMAIL": "noreply@caisson.invalid",
}

_FIXED = {
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=15 -oForwardAgent=no -oClearAllForwardings=yes",
    "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    **AUTHOR,
}

REMOTE_TIMEOUT = 20.0  # seconds in which a remote must have answered a first question


def environment(*, path: str, tmp: str, global_config: str) -> dict[str, str]:
    """Give the whole environment of a Git call; nothing is inherited.

    ``global_config`` names a file made of ``safe_config``, or ``/dev/null``.
    """
    return _FIXED | {"PATH": path, "TMPDIR": tmp, "GIT_CONFIG_GLOBAL": global_config}


def safe_config(repositories: Iterable[str]) -> str:
    """Give the text of a global configuration that trusts exactly these repositories, whoever owns their files."""
    lines = ["[safe]"]
    for path in repositories:
        quoted = path.replace("\\", "\\\\").replace('"', '\\"')
        lines += [f'\tdirectory = "{quoted}"', f'\tdirectory = "{quoted}/.git"']
    return "\n".join(lines) + "\n"


# --- outcome ---------------------------------------------------------------------------------------------------------


class GitFailed(Exception):
    """A Git call that did not do what it should. ``code`` is ``failed``, ``timeout`` or ``too_big``."""

    def __init__(self, code: str, message: str, *, returncode: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.returncode = returncode
        self.stderr = stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    returncode: int
    stdout: bytes
    stderr: str = ""

    @property
    def text(self) -> str:
        """Standard output as text without its last line end."""
        return self.stdout.decode("utf-8", "replace").rstrip("\n")


# --- names -----------------------------------------------------------------------------------------------------------

_COMPONENT = re.compile(r"\w[\w.+#@=%,-]*\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
NAME_LIMIT = 200  # bytes of a branch name


def valid_branch(name: str) -> bool:
    """Say whether ``name`` (without ``refs/heads/``) may be used. Stricter than Git: no quoting is ever needed.

    Letters and digits of any script and ``_ . + # @ = % , -``; a component starts with a letter, a digit or ``_``.
    """
    if not name or len(name.encode("utf-8", "replace")) > NAME_LIMIT or ".." in name or "@{" in name:
        return False
    if name == "HEAD" or name.startswith("refs/"):
        return False
    parts = name.split("/")
    return all(_COMPONENT.match(part) and not part.endswith((".", ".lock")) for part in parts)


def valid_ref(ref: str) -> bool:
    """Say whether ``ref`` is a full branch or tag name that may be used."""
    for prefix in ("refs/heads/", "refs/tags/"):
        if ref.startswith(prefix):
            return valid_branch(ref.removeprefix(prefix))
    return False


def valid_commit(text: str) -> bool:
    """Say whether ``text`` is a full commit id (SHA-1 or SHA-256, lower case)."""
    return bool(_COMMIT.match(text)) and set(text) != {"0"}


def valid_digest(text: str) -> bool:
    return bool(_DIGEST.match(text))


# --- addresses -------------------------------------------------------------------------------------------------------


class UrlKind(StrEnum):
    HTTPS = "https"
    HTTP = "http"
    SSH = "ssh"
    PATH = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteUrl:
    """An address in an allowed form. ``text`` is what Git is given; ``path`` is set for a local path only."""

    kind: UrlKind
    text: str
    host: str = ""
    port: int | None = None
    path: str = ""

    @property
    def is_local(self) -> bool:
        return self.kind is UrlKind.PATH


class UrlRefused(ValueError):
    """``code`` is a stable word; the message says what is wrong and never repeats a credential."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]+)\Z")
_SCP = re.compile(r"(?P<user>[A-Za-z0-9][A-Za-z0-9._-]*)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^/:\\][^:]*)\Z")
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_REMOTE_PATH = re.compile(r"/?[^\s\x00-\x1f\x7f\\]+\Z")
URL_LIMIT = 2000


def parse_url(text: str) -> RemoteUrl:
    """Read a clone address: ``https``, ``http``, ``ssh``, ``user@host:path`` or an absolute local path.

    Form only: whether the host or the path may be used is its caller's rule. Raises UrlRefused.
    """
    if not text or len(text) > URL_LIMIT:
        raise UrlRefused("url_malformed", "A repository address has between 1 and 2000 characters.")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise UrlRefused("url_malformed", "A repository address has no control characters.")
    if text.startswith("-"):
        raise UrlRefused("url_malformed", "A repository address does not start with a dash.")
    if text.startswith("/"):
        return _local(text)
    if "://" in text:
        return _with_scheme(text)
    if match := _SCP.match(text):
        return _remote(UrlKind.SSH, text, match["host"], None, match["path"])
    raise UrlRefused("url_malformed", "Use https://…, ssh://…, user@host:path, or an absolute path.")


def _local(text: str) -> RemoteUrl:
    pure = PurePosixPath(text)
    if ".." in pure.parts:
        raise UrlRefused("url_malformed", "A local repository path has no '..' in it.")
    return RemoteUrl(kind=UrlKind.PATH, text=str(pure), path=str(pure))


def _with_scheme(text: str) -> RemoteUrl:
    scheme, rest = text.split("://", 1)
    if scheme == "file":
        if not rest.startswith("/"):
            raise UrlRefused("url_malformed", "A file:// address names an absolute path of this machine.")
        return _local(rest)
    if scheme not in {"https", "http", "ssh"}:
        raise UrlRefused("url_scheme", f"Only https, ssh and local paths are allowed, not {scheme[:20]!r}.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UrlRefused("url_malformed", "The host or port of the repository address is not readable.") from None
    kind = UrlKind(scheme)
    if parts.password is not None or (parts.username is not None and kind is not UrlKind.SSH):
        raise UrlRefused(
            "url_credentials",
            "A repository address holds no credentials. Use ssh with a key of this machine, or the path of a clone.",
        )
    if parts.username is not None and not _USER.match(parts.username):
        raise UrlRefused("url_malformed", "The user name of the repository address is not allowed.")
    if parts.query or parts.fragment:
        raise UrlRefused("url_malformed", "A repository address has no query and no fragment.")
    return _remote(kind, text, parts.hostname or "", port, parts.path)


def _remote(kind: UrlKind, text: str, host: str, port: int | None, path: str) -> RemoteUrl:
    if not _HOST.match(host) or host.startswith("-"):
        raise UrlRefused("url_malformed", "The host of the repository address is not readable.")
    if path.strip("/") == "" or not _REMOTE_PATH.match(path) or path.lstrip("/").startswith("-"):
        raise UrlRefused("url_malformed", "The path of the repository address is empty or not allowed.")
    return RemoteUrl(kind=kind, text=text, host=host.lower(), port=port)


def valid_url(text: str) -> bool:
    """Say whether ``parse_url`` accepts it."""
    try:
        parse_url(text)
    except UrlRefused:
        return False
    return True
