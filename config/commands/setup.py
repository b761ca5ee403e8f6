"""Make the project's own environment, then hand over to it.

Standard library only; safe to run again, or twice at once.
"""

import fcntl
import hashlib
import os
import platform
import re
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from config.commands import in_use, result

PRODUCT = "requirements.txt"
SUITE = "requirements-test.txt"  # everything in PRODUCT, as pinned there, and more
AS_IT_IS = ("stop", "doctor")  # commands that ask only for an environment that is whole, be it an older one
ENDING = 10.0  # seconds within which a command ends after its product
GIT_NEEDED = (2, 38)  # the first one with ``git merge-tree --write-tree``
USAGE = """\
usage: ./caisson COMMAND [options]

  up [--port N] [--demo]            start the product and print how to sign in; Ctrl-C stops it, sandboxes stay
  run REPO "BRIEF" [--flow NAME|FILE] [--remote URL] [--json]
                                    start a task on a repository (path or URL) and follow it to its end
  demo [--json]                     the demo flow on a small project made for it, from nothing to a delivered branch
  test [fast|nightly]               set up what the suite needs, then run it
  doctor                            say what is wrong and how to fix it
  confirm-database [--yes]          end safe mode: a restored database is the one to go on with
  stop                              stop the product; sandboxes stay
  reset [--yes]                     delete every task by the ordinary path, then remove the state directory

State lives under CAISSON_STATE_DIR (default: .caisson in the checkout). ./caisson COMMAND --help says more.
"""
HELP = frozenset({"help", "--help", "-h"})
COMMANDS = ("up", "run", "demo", "test", "doctor", "confirm-database", "stop", "reset")


class SetupProblem(Exception):
    """Something outside the project is missing or broken; the message says what, where and how to fix it."""


class Environment:
    """``.venv`` with its stamps: ``made`` (Python and pip are whole), ``unfinished`` (pip was at work), one for each
    list of requirements that is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.stamps = folder / "caisson-stamps"
        self.made = self.stamps / "made"
        self.unfinished = self.stamps / "unfinished"

    def holds(self, requirements: Path) -> bool:
        """Say whether this list is installed as it stands now, for the Python that runs now."""
        try:
            return self.python.exists() and (self.stamps / requirements.name).read_text() == _stamp(requirements)
        except OSError:
            return False

    def is_whole(self) -> bool:
        """Say whether all that the product needs is installed, be it in an older version."""
        return self.python.exists() and (self.stamps / PRODUCT).exists()


def main(root: str, arguments: list[str]) -> int:
    """Run one command of ``./caisson`` from the checkout at ``root``. Gives the exit status; 2 is wrong usage."""
    if not arguments or arguments[0] in HELP or (arguments[0] == "test" and set(arguments[1:]) & HELP):
        sys.stdout.write(USAGE)
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        sys.stderr.write(f"caisson: there is no command {arguments[0]!r}.\n\n{USAGE}")
        return 2
    checkout, environment = Path(root), Environment(Path(root) / ".venv")
    requirements = SUITE if arguments[0] == "test" else PRODUCT
    ready = environment.holds(checkout / requirements) or (arguments[0] in AS_IT_IS and environment.is_whole())
    if _inside(environment.folder) and (ready or not environment.made.exists()):  # what set-up did not make is trusted
        from config.commands import dispatch

        return dispatch.main(checkout, arguments)
    return _set_up_and_go_on(checkout, arguments, None if ready else requirements)


def _set_up_and_go_on(checkout: Path, arguments: list[str], requirements: str | None) -> int:
    """Run the command again in the environment, after what it still needs; comes back only when that cannot be had."""
    environment = Environment(checkout / ".venv")
    script = [str(checkout / "caisson"), *arguments]
    if _inside(environment.folder):  # no Python can make anew what it runs from
        return _hand_over(Path(sys.executable).resolve(), script)
    try:
        if arguments[0] != "stop":
            check_git()
        if requirements:
            prepare(checkout, requirements)
    except SetupProblem as problem:
        return _given_up(arguments, f"caisson: {problem}", 1)
    except KeyboardInterrupt:
        return _given_up(arguments, "\ncaisson: set-up was interrupted; the next command goes on with it", 130)
    return _hand_over(environment.python, script)


def _given_up(arguments: list[str], words: str, status: int) -> int:
    sys.stderr.write(f"{words}\n")
    if result.wanted(arguments):
        result.tell(result.nothing())
    return status


def _hand_over(python: Path, arguments: list[str]) -> NoReturn:
    os.execv(python, [str(python), *arguments])


def check_git() -> None:
    """Raise SetupProblem unless a Git that is new enough is on the path."""
    try:
        said = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise SetupProblem(
            "Git is not installed or does not start; Caisson needs Git 2.38 or newer on the PATH."
        ) from None
    found = re.search(r"(\d+)\.(\d+)", said)
    if not found or (int(found[1]), int(found[2])) < GIT_NEEDED:
        raise SetupProblem(
            f"Caisson needs Git 2.38 or newer; this is {said.strip()}. Install a newer Git and try again."
        )


def prepare(checkout: Path, requirements: str) -> Path:
    """Give the Python of ``.venv`` with everything in ``requirements`` installed as pinned. Raises SetupProblem.

    Does nothing, and writes nothing, when a stamp says that it was done for these files and this Python. Changes
    nothing under a product or command that runs from it. After an interruption, a kill included, what may be half
    there is made again.
    """
    environment, wanted = Environment(checkout / ".venv"), checkout / requirements
    if environment.holds(wanted):
        return environment.python
    try:
        with _alone(checkout / ".venv.lock") as lock:
            if not environment.holds(wanted):
                _bring_about(environment, wanted, lock)
    except OSError as error:
        raise SetupProblem(f"{error.filename or environment.folder} cannot be written: {error.strerror}.") from None
    return environment.python


def _bring_about(environment: Environment, wanted: Path, lock: int) -> None:
    product = wanted.with_name(PRODUCT)
    stamps = {path: _stamp(path) for path in (product, wanted)}  # a pull may change them while pip works
    sound = environment.made.exists() and _works(environment.python)
    if not (sound and environment.holds(product)) or environment.unfinished.exists():
        _require_unused(environment)
        (environment.stamps / PRODUCT).unlink(missing_ok=True)
    # else packages are only added beside those that are there
    if not sound:
        _make(environment, lock)
    _install(environment, wanted, lock)
    for path, stamp in stamps.items():
        (environment.stamps / path.name).write_text(stamp)


def _require_unused(environment: Environment) -> None:
    """Raise SetupProblem while a product or command runs from it; a command that has just lost its product may end."""
    give_up_at = time.monotonic() + ENDING
    while found := in_use.users(environment.folder):
        if found[0].is_product or time.monotonic() > give_up_at:
            lines = "".join(f"  {user.what} (pid {user.pid}): {user.end}\n" for user in found)
            raise SetupProblem(
                f"the pinned packages, or the Python (this is {platform.python_version()}), are not those of "
                f"{environment.folder}, from which programs run now:\n"
                f"{lines}End them (kill PID does it too), then run this command again. Sandboxes go on meanwhile."
            )
        time.sleep(0.1)


def _inside(environment: Path) -> bool:
    return Path(sys.prefix).resolve() == environment.resolve()


def _stamp(requirements: Path) -> str:
    return f"{platform.python_version()} {hashlib.sha256(requirements.read_bytes()).hexdigest()}"


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Hold the lock and give its descriptor. A program that is given it keeps the lock if this process is killed."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("another ./caisson is setting up this checkout; waiting for it\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _make(environment: Environment, lock: int) -> None:
    sys.stderr.write(f"making {environment.folder}\n")
    venv.EnvBuilder(clear=True, symlinks=True).create(environment.folder)
    command = [str(environment.python), "-m", "ensurepip", "--default-pip"]
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False, pass_fds=[lock]).returncode:
        raise SetupProblem(
            f"{sys.executable} cannot put pip into {environment.folder} (its words stand above). "
            "On Debian and Ubuntu ensurepip comes with: apt install python3-venv"
        )
    environment.stamps.mkdir()
    environment.made.touch()


def _works(python: Path) -> bool:
    """Say whether the environment's Python starts and is the one that runs now (an upgrade of the system breaks it)."""
    if not python.exists():
        return False
    asked = [str(python), "-c", "import pip, platform; print(platform.python_version())"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False)
    return said.returncode == 0 and said.stdout.strip() == platform.python_version()


def _install(environment: Environment, requirements: Path, lock: int) -> None:
    sys.stderr.write(f"installing {requirements.name}\n")
    command = [str(environment.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--require-hashes", "-r", str(requirements)]
    if environment.unfinished.exists():  # what pip takes for installed may be half there
        command += ["--ignore-installed"]
    environment.unfinished.touch()
    if subprocess.run(command, stdout=sys.stderr, check=False, pass_fds=[lock]).returncode:
        raise SetupProblem(
            f"pip could not install {requirements.name} (its words stand above). Set-up needs the network once, and "
            "1 GiB of room; check the connection or pip's index setting and run the command again."
        )
    environment.unfinished.unlink()
