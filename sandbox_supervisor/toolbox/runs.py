"""Run a test suite and say which tests failed."""

import json
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from sandbox_supervisor.toolbox.environment import Environment
from sandbox_supervisor.toolbox.layout import Framework
from sandbox_supervisor.toolbox.processes import Deadline, run

MAX_REPORT = 64 * 1024 * 1024  # bytes
_USAGE = 4  # pytest's exit code for options that it does not know
_NOTHING_COLLECTED = 5

# Runs in the virtual environment, under the standard library alone; writes {"total": n, "failed": [ids]}.
_UNITTEST = """
import json, sys, unittest
sys.path.insert(0, ".")
loader = unittest.defaultTestLoader
suite = unittest.TestSuite()
for start in sys.argv[2:]:
    suite.addTests(loader.discover(start, pattern="*test*.py", top_level_dir=None if start == "." else "."))
result = unittest.TextTestRunner(verbosity=1).run(suite)
bad = [test for test, _ in result.failures + result.errors] + list(result.unexpectedSuccesses)
failed = sorted({(getattr(test, "test_case", None) or test).id() for test in bad})
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump({"total": result.testsRun, "failed": failed}, file)
"""


@dataclass(frozen=True, slots=True)
class Run:
    """``problem`` says why there is no verdict; then the other fields mean nothing."""

    total: int = 0
    failed: frozenset[str] = frozenset()
    seconds: float = 0.0
    problem: str = ""
    timed_out: bool = False


def run_tests(tree: Path, work: Path, environment: Environment, starts: tuple[str, ...], *, limit: float) -> Run:
    """Run the whole suite once, at most ``limit`` seconds. Reports are written to ``work``."""
    began = time.monotonic()
    if environment.framework is Framework.PYTEST:
        found = _pytest(tree, work / "junit.xml", environment, limit)
    else:
        found = _unittest(tree, work / "unittest.json", environment, starts, limit)
    return Run(found.total, found.failed, round(time.monotonic() - began, 1), found.problem, found.timed_out)


def _pytest(tree: Path, report: Path, environment: Environment, limit: float) -> Run:
    deadline = Deadline.after(limit)
    base = [
        str(environment.python),
        "-m",
        "pytest",
        "-q",
        "--no-header",
        "--tb=line",
        "--color=no",
        "-p",
        "no:cacheprovider",
    ]
    options = [f"--junitxml={report}", "--continue-on-collection-errors"]
    # Options of the project may need plugins that are not there: without them the tests may still run.
    for plainer in ([], ["-o", "addopts="]):
        report.unlink(missing_ok=True)
        done = run([*base, *options, *plainer], cwd=tree, env=environment.variables, deadline=deadline)
        if done.code is None:
            return Run(problem=f"the tests took more than {limit:g} s", timed_out=True)
        if done.code == _NOTHING_COLLECTED:
            return Run(problem="pytest collected no tests")
        if done.code != _USAGE:
            break
    return _read_junit(report, done.code, done.last_line)


def _read_junit(report: Path, code: int | None, last_line: str) -> Run:
    try:
        if report.stat().st_size > MAX_REPORT:
            return Run(problem="the test report is too large")
        cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314 - in the sandbox, of its own tests
    except (OSError, ET.ParseError):
        return Run(problem=f"pytest ended with code {code} and no report: {last_line}")
    failed = frozenset(
        _case_id(case) for case in cases if case.find("failure") is not None or case.find("error") is not None
    )
    if not cases:
        return Run(problem=f"pytest ran no test: {last_line}")
    if code not in (0, 1, 2):
        return Run(problem=f"pytest ended with code {code}: {last_line}")
    return Run(total=len(cases), failed=failed)


def _case_id(case: ET.Element) -> str:
    return "::".join(part for part in (case.get("classname", ""), case.get("name", "")) if part)


def _unittest(tree: Path, report: Path, environment: Environment, starts: tuple[str, ...], limit: float) -> Run:
    report.unlink(missing_ok=True)
    argv = [str(environment.python), "-c", _UNITTEST, str(report), *starts]
    done = run(argv, cwd=tree, env=environment.variables, deadline=Deadline.after(limit))
    if done.code is None:
        return Run(problem=f"the tests took more than {limit:g} s", timed_out=True)
    try:  # the tests themselves could have written it
        found = json.loads(report.read_text(encoding="utf-8"))
        total, failed = int(found["total"]), frozenset(map(str, found["failed"]))
    except (OSError, ValueError, LookupError, TypeError):
        return Run(problem=f"the tests ended with code {done.code} and no report: {done.last_line}")
    if not total and not failed:
        return Run(problem="unittest found no tests")
    return Run(total=total, failed=failed)
