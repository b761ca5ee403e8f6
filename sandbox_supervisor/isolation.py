"""Put bubblewrap around the runner and around each attempt, where it really works; say so where it does not.

Two layers. The outer one holds the runner and everything below it: system read-only, the user's home and the state
directory masked but for what this sandbox needs, PID and IPC namespaces, private temporary folders. The inner one holds
one attempt: of the sandbox it sees its own tree, HOME, temporary and artefact folder and the shared objects, nothing
else.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sandbox_supervisor.runner.folders import Folder

WRAPPERS = 2  # processes that bubblewrap puts between shim and program: its monitor and the namespace's init
PROBE_TIME = 15.0
_PRIVATE = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108  # the mount points, not files in them
_RUNTIME = Path("/run")
_SYSTEM = ((), *((name,) for name in ("usr", "bin", "sbin", "lib", "lib64", "etc", "dev", "proc", "sys", "run")))
_RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/connman")


class Tier(StrEnum):
    BUBBLEWRAP = "bubblewrap"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """``reason`` says to a person why it is this tier."""

    tier: Tier
    reason: str = ""
    bwrap: Path | None = None


class IsolationMissing(Exception):  # what happened
    """Bubblewrap was demanded and does not work here. The message says why."""


def choose(preference: str, *, bwrap: Path | None = None) -> Isolation:
    """Decide the tier by trying: ``auto``, ``bubblewrap`` (raises IsolationMissing) or ``none``."""
    if preference == Tier.NONE:
        return Isolation(tier=Tier.NONE, reason="chosen by the operator")
    if preference not in {"auto", Tier.BUBBLEWRAP}:
        raise ValueError(f"isolation is auto, bubblewrap or none, not {preference!r}")
    program = find_bwrap(bwrap)
    works, reason = probe(program)
    if works:
        return Isolation(tier=Tier.BUBBLEWRAP, reason=reason, bwrap=program)
    if preference == Tier.BUBBLEWRAP:
        raise IsolationMissing(reason)
    return Isolation(tier=Tier.NONE, reason=reason)


def find_bwrap(given: Path | None) -> Path | None:
    """Give the program named, else the machine's."""
    if given is not None:
        return given
    found = shutil.which("bwrap")
    return Path(found) if found else None


def probe(bwrap: Path | None) -> tuple[bool, str]:
    """Say whether two nested layers with all that is asked of them really work, and how that is known."""
    if bwrap is None or not os.access(bwrap, os.X_OK):
        return False, "there is no bubblewrap program"
    with tempfile.TemporaryDirectory(prefix="caisson-probe-") as name:
        state = Path(name)
        place = {part: state / part for part in ("ctl", "repo", "work")}
        folder = Folder(place["work"] / "probe.1.1")
        for path in (*place.values(), place["repo"] / "objects", *folder.shown):
            path.mkdir(parents=True)
        (state / "secret").touch()
        isolation = Isolation(tier=Tier.BUBBLEWRAP, bwrap=bwrap)
        outer = _outer(isolation, state, place["ctl"], place["repo"], place["work"], read_only=(bwrap,), mask=())
        inner = attempt_prefix(isolation, folder=folder, repo=place["repo"], ctl=place["ctl"])
        test = f'test ! -e "{state}/secret" && test ! -e "{place["ctl"]}/x" && touch "{folder.tree}/x" && echo works'
        return _try([*outer, *inner, "/bin/sh", "-c", test])


def _try(argv: Sequence[str]) -> tuple[bool, str]:
    try:
        done = subprocess.run(
            argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=PROBE_TIME, check=False, cwd="/", text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, f"bubblewrap could not be tried: {error}"
    if done.stdout.strip() == "works":
        return True, "two nested layers of bubblewrap were tried and work"
    return False, f"bubblewrap does not work here: {done.stderr.strip()[:500] or f'exit code {done.returncode}'}"


def runner_prefix(
    isolation: Isolation | None = None,
    *,
    tier: str | None = None,
    bwrap: Path | None = None,
    folder: Path | None = None,
    ctl_dir: Path | None = None,
    repo: Path | None = None,
    work: Path | None = None,
    image: Path | None = None,
    state: Path | None = None,
    read_only: Sequence[Path] = (),
    mask: Sequence[Path] = (),
) -> list[str]:
    """Give what stands before the runner's command: nothing in tier ``none``.

    ``folder`` stands for ``ctl``, ``repo`` and ``work`` below it. The user's home and ``state`` (else ``folder``) are
    masked whole, then the three, ``image`` and ``read_only`` are shown again at their own paths; only ``work`` can be
    written. ``mask`` hides more. All of them must exist.
    """
    chosen = isolation or Isolation(tier=Tier(tier or Tier.NONE), bwrap=bwrap)
    if chosen.tier is Tier.NONE:
        return []
    base = folder or Path(os.path.commonpath([str(path) for path in (ctl_dir, repo, work) if path]))
    shown = [*([image] if image else []), *read_only, *([chosen.bwrap] if chosen.bwrap else [])]
    return _outer(
        chosen, state or base, ctl_dir or base / "ctl", repo or base / "repo", work or base / "work",
        read_only=shown, mask=mask,
    )  # fmt: skip


def _outer(
    isolation: Isolation,
    state: Path,
    ctl: Path,
    repo: Path,
    work: Path,
    *,
    read_only: Sequence[Path],
    mask: Sequence[Path],
) -> list[str]:
    # CAP_SYS_ADMIN stays inside for root, and a user namespace is made otherwise: the inner layer needs one of them.
    hidden = [path for path in mask if path.exists()]
    argv = [str(isolation.bwrap), "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try"]
    argv += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    argv += [word for path in _PRIVATE if path.is_dir() for word in ("--tmpfs", str(path))]
    argv += _runtime()
    argv += [word for path in (*_home(), state.resolve()) for word in ("--tmpfs", str(path))]
    argv += _show(needed(read_only))
    argv += ["--ro-bind", str(repo.resolve()), str(repo.resolve()), "--ro-bind", str(ctl.resolve()), str(ctl.resolve())]
    argv += ["--bind", str(work.resolve()), str(work.resolve())]
    argv += [word for path in hidden for word in _hide(path)]
    return [*argv, "--chdir", "/", "--"]


def attempt_prefix(
    isolation: Isolation, *, folder: Folder, repo: Path, ctl: Path, image: Path | None = None
) -> list[str]:
    """Give what stands before an attempt's command inside the runner's layer: nothing in tier ``none``."""
    if isolation.tier is Tier.NONE:
        return []
    work, objects = folder.path.parent, str(repo / "objects")
    argv = [str(isolation.bwrap), "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"]
    argv += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    argv += [word for path in _PRIVATE if path.is_dir() for word in ("--bind", str(folder.tmp), str(path))]
    for hidden in (work, ctl, repo):
        argv += ["--tmpfs", str(hidden)]
    argv += _show(path for path in needed([image] if image else []) if _is_private(path))
    argv += ["--ro-bind", objects, objects]
    for path in folder.shown:
        argv += ["--bind", str(path), str(path)]
    for hidden in (work, ctl, repo):
        argv += ["--remount-ro", str(hidden)]
    return [*argv, "--chdir", str(folder.tree), "--"]


def needed(paths: Iterable[Path]) -> list[Path]:
    """Give ``paths`` and what Python itself needs: interpreter, its libraries, this package."""
    python = (Path(sys.base_prefix), Path(sys.prefix), Path(sys.executable), Path(__file__).parents[1])
    found: list[Path] = []
    for path in (*python, *paths):
        real = path.resolve()
        if real.exists() and real != Path("/") and real not in found and real not in map(Path, ("/usr", "/usr/local")):
            found.append(real)
    return found


def _is_private(path: Path) -> bool:
    return any(path.is_relative_to(private) for private in _PRIVATE)


def _show(paths: Iterable[Path]) -> list[str]:
    return [word for path in paths for word in ("--ro-bind", str(path), str(path))]


def _hide(path: Path) -> list[str]:
    """Cover a folder with an empty one, a file with nothing."""
    return ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]


def _home() -> list[Path]:
    """Name the user's home, in which keys, tokens and histories of all kinds lie: it is no part of the system."""
    try:
        home = Path.home().resolve()
    except RuntimeError:  # a user without one
        return []
    return [home] if home.is_dir() and home.parts[1:2] not in _SYSTEM else []


def _runtime() -> list[str]:
    """Hide /run, where sockets of daemons would lead out, but for what name resolution reads."""
    if not _RUNTIME.is_dir():
        return []
    return ["--tmpfs", str(_RUNTIME), *(word for path in _RESOLVERS for word in ("--ro-bind-try", path, path))]
