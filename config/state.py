"""The state directory: its folders, its generated secrets, and a run folder whose socket paths are short enough."""

import hashlib
import os
import secrets
from pathlib import Path

FOLDERS = ("secrets", "sandboxes", "images", "files", "logs", "static", "deployment")
LATER = ("mirrors", "demo", "run")  # made when they are needed
DATABASE = "caisson.sqlite3"
SOCKET_PATH_LIMIT = 100  # sun_path holds 108 bytes; the longest name below run/ is ``supervisord.sock``


def prepare(state: Path) -> Path:
    """Make the state directory (0700) and its folders; give it back. Raises OSError when it cannot be written."""
    for folder in (state, *(state / name for name in FOLDERS)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return state


def run_folder(state: Path) -> Path:
    """Give the folder for sockets: ``run`` in the state directory, or a private one below /tmp when that path is long.

    Repeating gives the same folder. Raises PermissionError when the one below /tmp belongs to somebody else.
    """
    inside = state / "run"
    if len(os.fsencode(inside / "supervisord.sock.12345")) <= SOCKET_PATH_LIMIT:
        inside.mkdir(mode=0o700, parents=True, exist_ok=True)
        return inside
    name = hashlib.sha256(os.fsencode(state)).hexdigest()[:16]
    outside = Path("/tmp") / f"caisson-{os.getuid()}-{name}"  # noqa: S108 - owner and mode are checked below
    outside.mkdir(mode=0o700, exist_ok=True)
    facts = outside.lstat()
    if outside.is_symlink() or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise PermissionError(f"{outside} exists and is not a private folder of this user; remove it and try again")
    return outside


def generated(state: Path, name: str, *, prefix: str = "") -> str:
    """Give the secret kept in ``secrets/<name>`` (0600), made on first use; two that race agree on one."""
    path = state / "secrets" / name
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        pass
    draft = path.with_name(f".{name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(prefix + secrets.token_hex(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)  # the first one wins, whole
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text(encoding="ascii").strip()
