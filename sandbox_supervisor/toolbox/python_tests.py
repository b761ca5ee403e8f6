"""``python -m sandbox_supervisor python-tests``: run the tests of the Python repository in the current folder.

Two runs make a comparison: the first writes its result, the second gets it in ``CAISSON_TESTS_BEFORE`` and fails only
for tests that failed in it and not before, twice in a row. What cannot be judged is *skipped*, with the reason; it is
never called passed. The result is JSON in ``$CAISSON_RESULT``.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from sandbox_supervisor.toolbox.environment import Environment, prepare
from sandbox_supervisor.toolbox.layout import Layout, read_layout
from sandbox_supervisor.toolbox.processes import Deadline
from sandbox_supervisor.toolbox.runs import Run, run_tests

BEFORE = "CAISSON_TESTS_BEFORE"
MAX_FAILED = 500  # ids that travel from one run to the next
MAX_TEXT = 40 * 1024  # bytes of these ids as JSON: they travel in a result of 64 KiB and in an environment variable
MAX_NEW = 8 * 1024  # bytes of the ids of new failures
MAX_REASON = 500  # characters


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``failed`` holds every failing test, ``new`` those that did not fail before."""

    status: Status
    reason: str
    framework: str = ""
    total: int = 0
    failed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    seconds: float = 0.0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python-tests")
    parser.add_argument("--install-timeout", type=float, default=300.0, help="seconds for the virtual environment")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one run of the tests")
    arguments = parser.parse_args(argv)
    before = read_before(os.environ.get(BEFORE, ""))
    verdict = judge(Path.cwd(), before, install_timeout=arguments.install_timeout, timeout=arguments.timeout)
    _report(verdict)
    return 1 if before is not None and verdict.status is Status.FAILED else 0


def read_before(text: str) -> Verdict | None:
    """Read the first run's result. Raises SystemExit for text that is none."""
    if not text:
        return None
    try:
        raw = json.loads(text)
        return Verdict(status=Status(raw["status"]), reason=str(raw["reason"]), failed=tuple(map(str, raw["failed"])))
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{BEFORE} does not hold a result of python-tests: {error}") from None


def judge(tree: Path, before: Verdict | None, *, install_timeout: float, timeout: float) -> Verdict:
    """Run the tests of ``tree``; with ``before``, compare."""
    if before is not None and before.status is Status.SKIPPED:
        return _skipped(f"before the change: {before.reason}")
    layout = read_layout(tree)
    if layout.framework is None:
        return _not_run(layout.reason, before)
    home = Path(os.environ.get("HOME") or tempfile.gettempdir())
    work = Path(tempfile.mkdtemp(prefix="python-tests-", dir=home if home.is_dir() else None))
    try:
        environment = prepare(tree, work, layout, Deadline.after(install_timeout))
        if environment.python is None and before is not None:  # once more: a registry may not have answered
            environment = prepare(tree, work, layout, Deadline.after(install_timeout))
        if environment.python is None:
            return _not_run(environment.reason, before)
        first = run_tests(tree, work, environment, starts(layout), limit=timeout)
        if before is None:
            return _plain(first, environment)
        return _compared(
            first, before, environment, lambda: run_tests(tree, work, environment, starts(layout), limit=timeout)
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)


def starts(layout: Layout) -> tuple[str, ...]:
    """Give the folders in which unittest begins to look: the top-level ones that hold test files."""
    folders = {PurePosixPath(name).parts[0] if "/" in name else "." for name in layout.test_files}
    return tuple(sorted(folder for folder in folders if folder == "." or folder.isidentifier()))


def _plain(run: Run, environment: Environment) -> Verdict:
    if run.problem:
        return _skipped(run.problem)
    if _fitting(run.failed, MAX_TEXT) != tuple(sorted(run.failed)):
        return _skipped(f"{len(run.failed)} of {run.total} tests fail, too many to compare")
    if len(run.failed) >= run.total:
        return _skipped(f"all {run.total} tests fail; the first: {min(run.failed)}")
    status = Status.FAILED if run.failed else Status.PASSED
    return _verdict(run, environment, status, f"{len(run.failed)} of {run.total} tests fail", new=())


def _compared(run: Run, before: Verdict, environment: Environment, again: Callable[[], Run]) -> Verdict:
    if run.timed_out:
        return _verdict(run, environment, Status.FAILED, f"{run.problem}; before the change they ended in time", new=())
    if run.problem:
        return _verdict(run, environment, Status.FAILED, f"{run.problem}; before the change they ran", new=())
    new = run.failed - set(before.failed)
    if new:
        sys.stdout.write(
            f"{len(new)} tests fail that did not fail before; running once more to tell chance from cause.\n"
        )
        second = again()
        new = new & second.failed if not second.problem else new
    if new:
        return _verdict(
            run, environment, Status.FAILED, f"{len(new)} tests fail that did not fail before", new=tuple(new)
        )
    reason = f"{run.total} tests ran; none fails that did not fail before"
    return _verdict(run, environment, Status.PASSED, reason, new=())


def _verdict(run: Run, environment: Environment, status: Status, reason: str, *, new: tuple[str, ...]) -> Verdict:
    return Verdict(
        status=status,
        reason=reason[:MAX_REASON],
        framework=str(environment.framework or ""),
        total=run.total,
        failed=_fitting(run.failed, MAX_TEXT),
        new=_fitting(new, MAX_NEW),
        seconds=run.seconds,
    )


def _fitting(names: Iterable[str], limit: int) -> tuple[str, ...]:
    """Give the first names in order, as many as may travel."""
    found: list[str] = []
    for name in sorted(names)[:MAX_FAILED]:
        limit -= len(json.dumps(name)) + 2
        if limit < 0:
            break
        found.append(name)
    return tuple(found)


def _not_run(reason: str, before: Verdict | None) -> Verdict:
    """Skip the first run; a second one that cannot be made is a failure, since the first could."""
    if before is None:
        return _skipped(reason)
    return Verdict(status=Status.FAILED, reason=f"{reason[:MAX_REASON]}; before the change the tests ran")


def _skipped(reason: str) -> Verdict:
    return Verdict(status=Status.SKIPPED, reason=reason[:MAX_REASON])


def _report(verdict: Verdict) -> None:
    sys.stdout.write(f"\n{verdict.status}: {verdict.reason}\n")
    for name in verdict.new[:50]:
        sys.stdout.write(f"  new failure: {name}\n")
    target = os.environ.get("CAISSON_RESULT")
    if target:
        Path(target).write_text(json.dumps(asdict(verdict)), encoding="utf-8")
