"""Say which programs of Caisson run from the project's environment. Standard library only: set-up asks.

Found by what the system says of its processes: that needs no co-operation, so that nothing can have forgotten to tell.
"""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

MANAGER = "supervisor.supervisord"  # the module that a product's process manager runs


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A program that runs from the environment: a product, or a command of ``./caisson``."""

    pid: int
    what: str
    end: str  # how to end it
    is_product: bool = True


def users(environment: Path) -> list[User]:
    """Give the products and commands that run from ``environment``, but this process; products first."""
    found = (_user(folder, environment) for folder in Path("/proc").glob("[0-9]*"))
    return sorted((user for user in found if user), key=lambda user: (not user.is_product, user.pid))


def _user(folder: Path, environment: Path) -> User | None:
    try:
        words = [os.fsdecode(word) for word in (folder / "cmdline").read_bytes().split(b"\0")] + ["", ""]
    except OSError:  # it has ended
        return None
    pid = int(folder.name)
    if Path(words[0]).parent != environment / "bin" or pid == os.getpid():
        return None
    if MANAGER in words[1:3]:
        return _product(pid, folder)
    if words[1] == str(environment.parent / "caisson"):
        return User(pid=pid, what=f"./caisson {words[2]}", end="Ctrl-C, or wait for its end", is_product=False)
    return None


def _product(pid: int, folder: Path) -> User:
    try:
        pairs = (os.fsdecode(pair).partition("=") for pair in (folder / "environ").read_bytes().split(b"\0"))
    except OSError:
        return User(pid=pid, what="a product of another user", end="ask them to stop it")
    state = next((value for name, _, value in pairs if name == "CAISSON_STATE_DIR"), "")
    return User(pid=pid, what=f"the product of {state}", end=f"CAISSON_STATE_DIR={shlex.quote(state)} ./caisson stop")
