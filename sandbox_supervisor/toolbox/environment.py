"""Make a virtual environment for a repository's tests, with whatever its pip can reach."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox_supervisor.toolbox.layout import Framework, Layout
from sandbox_supervisor.toolbox.processes import Deadline, Done, run


@dataclass(frozen=True, slots=True)
class Environment:
    """``python`` runs the tests under ``framework``; without one, ``reason`` says what could not be installed."""

    python: Path | None
    variables: dict[str, str]
    framework: Framework | None = None
    reason: str = ""


def prepare(tree: Path, home: Path, layout: Layout, deadline: Deadline) -> Environment:
    """Make ``home/venv`` and install what the layout names, as far as it can be installed.

    The project itself must install when it says that it can be: tests of something half installed prove nothing.
    """
    return _Maker(tree, home / "venv", layout, deadline).make()


class _Maker:
    def __init__(self, tree: Path, folder: Path, layout: Layout, deadline: Deadline) -> None:
        self.tree = tree
        self.folder = folder
        self.layout = layout
        self.deadline = deadline
        self.python = folder / "bin" / "python"
        self.variables = _variables(folder)

    def make(self) -> Environment:
        made = self._run(sys.executable, "-I", "-m", "venv", str(self.folder))
        if not made.ok:
            return self._without("the virtual environment could not be made", made)
        if self.layout.installable:
            done = self._project()
            if not done.ok:
                return self._without("the project could not be installed", done)
        for name in self.layout.requirement_files:
            done = self._pip("-r", name)
            if not done.ok and not self.layout.installable:
                return self._without(f"the requirements in {name} could not be installed", done)
        if self.layout.groups:
            self._pip(*(word for group in self.layout.groups for word in ("--group", group)))
        return self._framework()

    def _project(self) -> Done:
        """Try the ways from the best to the plainest: editable with its test extras, editable, as a copy."""
        done = Done(1, "")
        for target, extra in _ways(self.layout):
            done = self._pip(*target, extra=extra)
            if done.ok or done.code is None:
                return done
        return done

    def _framework(self) -> Environment:
        if self.layout.framework is not Framework.PYTEST:
            return Environment(self.python, self.variables, Framework.UNITTEST)
        done = self._pip("pytest")
        if done.ok:
            return Environment(self.python, self.variables, Framework.PYTEST)
        if not self.layout.needs_pytest:
            return Environment(self.python, self.variables, Framework.UNITTEST)
        return self._without("pytest could not be installed", done)

    def _pip(self, *arguments: str, extra: Mapping[str, str] | None = None) -> Done:
        pip = (str(self.python), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check")
        return self._run(*pip, *arguments, extra=extra)

    def _run(self, *argv: str, extra: Mapping[str, str] | None = None) -> Done:
        return run(argv, cwd=self.tree, env=self.variables | dict(extra or {}), deadline=self.deadline)

    def _without(self, what: str, done: Done) -> Environment:
        why = "it took too long" if done.code is None else done.last_line
        if self.layout.submodules:
            why += " (the repository has submodules, whose files are not checked out)"
        return Environment(None, self.variables, reason=f"{what}: {why}")


def _ways(layout: Layout) -> Iterator[tuple[list[str], dict[str, str]]]:
    pretend = {"SETUPTOOLS_SCM_PRETEND_VERSION": "0.0.0", "PBR_VERSION": "0.0.0"}  # for a clone without tags
    if layout.extras:
        yield ["-e", f".[{','.join(layout.extras[:2])}]"], {}
    yield ["-e", "."], {}
    yield ["-e", "."], pretend
    yield ["."], pretend


def _variables(folder: Path) -> dict[str, str]:
    """Give our own environment without what would lead Python elsewhere."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "PYTHONSTARTUP"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {
        "VIRTUAL_ENV": str(folder),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
