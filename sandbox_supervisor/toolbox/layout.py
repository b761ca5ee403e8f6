"""Find out how a Python repository is tested and what it says it needs."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

MAX_FILE = 1024 * 1024  # bytes of a file that is looked into
MAX_FILES = 2000
_TEST_FILE = re.compile(r"(?:test_.*|.*_test|tests?)\.py\Z")
_VENDORED = frozenset({"node_modules", "site-packages", ".venv", "venv", "vendor", "_vendor", "third_party"})
_EXTRAS = ("test", "tests", "testing", "pytest", "dev", "develop", "development", "all")
_GROUPS = ("test", "tests", "testing", "dev")
_REQUIREMENTS = re.compile(
    r"(?:requirements[-_.]?)?(?:tests?|testing|dev|develop)?(?:[-_.]requirements)?\.(?:txt|in)\Z"
)


class Framework(StrEnum):
    PYTEST = "pytest"
    UNITTEST = "unittest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Without a ``framework`` the repository has no tests that can be run, for the ``reason``.

    ``needs_pytest`` is False when every test also runs under the standard library.
    """

    framework: Framework | None = None
    reason: str = ""
    needs_pytest: bool = False
    test_files: tuple[str, ...] = ()
    installable: bool = False
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    requirement_files: tuple[str, ...] = ()
    submodules: bool = False  # their files are not there


def read_layout(tree: Path) -> Layout:
    """Look at what Git tracks in ``tree``; nothing of the repository is executed."""
    names = _tracked(tree)
    tests = tuple(name for name in names if _is_test(name))
    if not any(name.endswith(".py") for name in names):
        return Layout(reason="the repository has no Python files")
    if not tests:
        return Layout(reason="the repository has no test files (test_*.py, *_test.py, tests.py)")
    looks = [_look(tree / name) for name in tests[:MAX_FILES]]
    written_for_pytest = any(look.pytest for look in looks)
    if not written_for_pytest and not any(look.unittest for look in looks):
        return Layout(reason="the test files hold neither unittest classes nor pytest functions")
    pytest = written_for_pytest or _configures_pytest(tree, names)
    project = _pyproject(tree)
    return Layout(
        framework=Framework.PYTEST if pytest else Framework.UNITTEST,
        needs_pytest=written_for_pytest,
        test_files=tests,
        installable="setup.py" in names or "build-system" in project or "project" in project,
        extras=_named(_table(project, "project").get("optional-dependencies"), _EXTRAS),
        groups=_named(project.get("dependency-groups"), _GROUPS),
        requirement_files=_requirement_files(names),
        submodules=".gitmodules" in names,
    )


@dataclass(frozen=True, slots=True)
class _Look:
    pytest: bool
    unittest: bool


def _look(path: Path) -> _Look:
    """Say for which framework a test file is written; one that cannot be read is for neither."""
    try:
        text = path.read_text(encoding="utf-8") if path.stat().st_size <= MAX_FILE and not path.is_symlink() else ""
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return _Look(pytest=False, unittest=False)
    imported = {name.split(".")[0] for node in ast.walk(tree) for name in _imports(node)}
    functions = any(isinstance(node, ast.FunctionDef) and node.name.startswith("test") for node in tree.body)
    plain = any(
        isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not node.bases for node in tree.body
    )
    return _Look(pytest="pytest" in imported or functions or plain, unittest="unittest" in imported)


def _imports(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def _tracked(tree: Path) -> list[str]:
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "ls-files", "-z"], cwd=tree, capture_output=True, timeout=60, check=True
    )
    return [name for name in done.stdout.decode("utf-8", "replace").split("\0") if name]


def _is_test(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(_TEST_FILE.match(path.name)) and not _VENDORED.intersection(path.parts)


def _configures_pytest(tree: Path, names: list[str]) -> bool:
    if any(PurePosixPath(name).name in ("conftest.py", "pytest.ini", ".pytest.ini") for name in names):
        return True
    if "pytest" in _table(_pyproject(tree), "tool"):
        return True
    return any(
        "[tool:pytest]" in text or "[pytest]" in text for text in (_text(tree / "setup.cfg"), _text(tree / "tox.ini"))
    )


def _pyproject(tree: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(tree / "pyproject.toml"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    try:
        if path.is_symlink() or path.stat().st_size > MAX_FILE:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _named(table: Any, wanted: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in wanted if isinstance(table, dict) and name in table)


def _requirement_files(names: list[str]) -> tuple[str, ...]:
    """Requirements for running and for tests, at the top or one folder down; compiled files win over their sources."""
    found = [
        name
        for name in names
        if len(PurePosixPath(name).parts) <= 2
        and "requirements" in name
        and _REQUIREMENTS.match(PurePosixPath(name).name)
    ]
    compiled = {name.removesuffix(".txt") for name in found if name.endswith(".txt")}
    return tuple(name for name in found if name.endswith(".txt") or name.removesuffix(".in") not in compiled)
