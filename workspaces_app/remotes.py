"""Decide whether a repository's address may be used: its form, its host, its place on this machine."""

import os
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from sandbox_supervisor.protocol.git_rules import RemoteUrl, UrlKind, UrlRefused, parse_url
from workspaces_app.errors import Refused, Unavailable

Resolve = Callable[[str], Collection[str]]


def addresses_of(host: str) -> Collection[str]:
    """Ask the machine's resolver. Raises Unavailable when it knows no such host."""
    try:
        return {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        raise Unavailable(
            f"The host {host} of the repository cannot be found. Check its name, and the network.",
            code="remote_host_unknown",
            host=host,
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where repositories may lie. Inside ``roots``, but not in a ``closed`` folder that lies in the root itself."""

    roots: tuple[Path, ...] = ()
    closed: tuple[Path, ...] = ()
    private_hosts: frozenset[str] = frozenset()  # hosts that may have private addresses and speak plain http

    def hold(self, path: Path) -> bool:
        return any(path.is_relative_to(root) and not self._closed_below(root, path) for root in self.roots)

    def _closed_below(self, root: Path, path: Path) -> bool:
        return any(path.is_relative_to(shut) and shut.is_relative_to(root) and shut != root for shut in self.closed)


def check_remote(text: str, *, places: Places, resolve: Resolve = addresses_of) -> RemoteUrl:
    """Give the address in the form that Git is given, or raise Refused (or Unavailable: no such host).

    A local path must lie, with its links followed, where ``places`` holds it; it comes back real. A host must have no
    private, loopback, link-local or otherwise special address, nor be asked over plain http, unless it is named.
    """
    try:
        url = parse_url(text)
    except UrlRefused as refused:
        raise Refused(refused.message, code=refused.code) from None
    if url.is_local:
        return _local(url, places)
    if url.host in places.private_hosts:
        return url
    if url.kind is UrlKind.HTTP:
        raise Refused("Plain http is open to everybody on the way; use https or ssh.", code="url_scheme")
    _refuse_private(url.host, resolve)
    return url


def real_folder(path: str | Path) -> Path:
    """Give the absolute path with links followed. Raises Refused for what is not a folder that can be read."""
    real = Path(os.path.realpath(path))
    if not real.is_dir():
        raise Refused(f"{path} is not a folder on this machine.", code="path_missing", path=str(path))
    return real


def _local(url: RemoteUrl, places: Places) -> RemoteUrl:
    real = Path(os.path.realpath(url.path))
    if not places.hold(real):
        raise Refused(
            f"{real} is not below a folder that this workspace may use; an administrator can allow it.",
            code="path_not_allowed",
            path=str(real),
        )
    real_folder(real)
    return parse_url(str(real))


def _refuse_private(host: str, resolve: Resolve) -> None:
    for text in _literal(host) or resolve(host):
        if not _is_public(ip_address(text)):
            raise Refused(
                f"The repository's host {host} has the private address {text}. "
                "To allow it, name the host in CAISSON_PRIVATE_REMOTES.",
                code="remote_private",
                host=host,
            )


def _literal(host: str) -> Collection[str]:
    """Give the address when the host is one, in any spelling that resolvers accept (``127.1``, ``0x7f000001``)."""
    try:
        return (str(ip_address(host.strip("[]"))),)
    except ValueError:
        pass
    try:
        return (socket.inet_ntoa(socket.inet_aton(host)),)
    except OSError:
        return ()


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    if mapped is not None:
        return _is_public(mapped)
    return address.is_global and not address.is_multicast
