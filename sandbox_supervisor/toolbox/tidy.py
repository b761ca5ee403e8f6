"""``python -m sandbox_supervisor tidy``: format the Python repository in the current folder and sort its imports.

Uses the project's own ruff settings; when these cannot be read, ruff's defaults. Files that are no Python of today
stay as they are. The result, JSON in ``$CAISSON_RESULT``, says how many files changed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from sandbox_supervisor.toolbox.processes import Deadline, Done, run

TIMEOUT = 300.0  # seconds for everything
_CONFIGURATION = 2  # ruff's exit code for what it cannot work with
_COMMON = ("--no-cache", "--extend-exclude", "*.ipynb")
_NAMED = 3  # files that are named in the reason


def main(argv: list[str]) -> int:
    if argv:
        sys.stderr.write("usage: python -m sandbox_supervisor tidy\n")
        return 2
    tree = Path.cwd()
    deadline = Deadline.after(TIMEOUT)
    done = _tidy(tree, deadline, ())
    if done.code is None:
        sys.stderr.write(f"ruff took more than {TIMEOUT:g} s\n")
        return 1
    changed = changed_files(tree)
    sys.stdout.write(f"{len(changed)} files changed\n")
    target = os.environ.get("CAISSON_RESULT")
    if target:
        reason = "" if done.ok else f"some files were left alone: {_why(done)}"
        Path(target).write_text(json.dumps({"changed": len(changed), "reason": reason}), encoding="utf-8")
    return 0


def _why(done: Done) -> str:
    """Give what ruff said of the files that it could not read."""
    errors = [line.strip().removeprefix("error: ")[:200] for line in done.tail.splitlines() if "error: " in line]
    more = f" (and {len(errors) - _NAMED} more)" if len(errors) > _NAMED else ""
    return "; ".join(errors[:_NAMED]) + more if errors else done.last_line


def changed_files(tree: Path) -> list[str]:
    """Name the tracked files whose content differs from what is committed."""
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "diff", "--name-only", "-z", "--no-ext-diff", "--no-textconv"],
        cwd=tree, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return [name for name in done.stdout.decode("utf-8", "replace").split("\0") if name]


def _tidy(tree: Path, deadline: Deadline, extra: tuple[str, ...]) -> Done:
    """Sort imports, then format; a configuration that ruff cannot read is left out and both are done again."""
    imports = run(
        ["ruff", "check", "--quiet", *_COMMON, *extra, "--select", "I", "--fix", "--exit-zero", "."],
        cwd=tree,
        env=os.environ,
        deadline=deadline,
    )
    if imports.code == _CONFIGURATION and not extra and not changed_files(tree):
        return _tidy(tree, deadline, ("--isolated",))
    formatted = run(["ruff", "format", *_COMMON, *extra, "."], cwd=tree, env=os.environ, deadline=deadline)
    return formatted if not formatted.ok else imports
