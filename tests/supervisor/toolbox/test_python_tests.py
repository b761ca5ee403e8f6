"""The tool on small real repositories, offline: their tests need the standard library only."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from sandbox_supervisor.toolbox import processes, python_tests
from sandbox_supervisor.toolbox.environment import Environment
from sandbox_supervisor.toolbox.layout import Framework
from sandbox_supervisor.toolbox.processes import Deadline
from sandbox_supervisor.toolbox.python_tests import Status, Verdict, judge, read_before
from sandbox_supervisor.toolbox.runs import run_tests

ROOT = Path(__file__).resolve().parents[3]
GOOD = "    def test_good(self): self.assertTrue(True)\n"
BAD = "    def test_bad(self): self.assertEqual(1, 2)\n"
HANGS = "    def test_hangs(self):\n        import time\n        time.sleep(600)\n"
SUBTESTS = (
    "    def test_many(self):\n        for i in range(3):\n            with self.subTest(i=i): self.assertEqual(i, 0)\n"
)


def repository(tmp_path: Path, *tests: str) -> Path:
    tree = tmp_path / "tree"
    (tree / "tests").mkdir(parents=True)
    (tree / "tests" / "__init__.py").touch()
    write(tree, *tests)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tree, check=True)
    return tree


def write(tree: Path, *tests: str) -> None:
    text = "import unittest\n\n\nclass T(unittest.TestCase):\n" + "".join(tests or ["    pass\n"])
    (tree / "tests" / "test_it.py").write_text(text)


def here() -> Environment:
    """This interpreter instead of a new virtual environment: the run is what is looked at."""
    variables = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return Environment(Path(sys.executable), variables | {"PYTHONDONTWRITEBYTECODE": "1"}, Framework.UNITTEST)


def run(tree: Path, tmp_path: Path, framework=Framework.UNITTEST, limit=60.0):
    environment = Environment(here().python, here().variables, framework)
    return run_tests(tree, tmp_path, environment, ("tests",), limit=limit)


@pytest.mark.parametrize(
    ("framework", "bad"),
    [(Framework.UNITTEST, "tests.test_it.T.test_bad"), (Framework.PYTEST, "tests.test_it.T::test_bad")],
)
def test_both_frameworks_name_what_failed(tmp_path, framework, bad):
    found = run(repository(tmp_path, GOOD, BAD), tmp_path, framework)
    assert (found.total, found.failed, found.problem) == (2, frozenset({bad}), "")


def test_a_failing_subtest_fails_its_test_once(tmp_path):
    assert run(repository(tmp_path, SUBTESTS), tmp_path).failed == {"tests.test_it.T.test_many"}


@pytest.mark.parametrize("report", ["[]", "3", "{}", '{"total": "x", "failed": []}', '{"total": 1, "failed": 3}'])
def test_a_report_that_the_tests_have_spoilt_is_no_verdict(tmp_path, report):
    spoils = f"import atexit, sys; atexit.register(open(sys.argv[1], 'w').write, {report!r})\n"
    spoils = "    def test_it(self):\n        " + spoils
    assert "no report" in run(repository(tmp_path, spoils), tmp_path).problem


@pytest.mark.parametrize("framework", Framework)
def test_a_module_that_cannot_be_imported_is_a_failure(tmp_path, framework):
    tree = repository(tmp_path, GOOD)
    (tree / "tests" / "test_broken.py").write_text("import no_such_module_at_all\n")
    found = run(tree, tmp_path, framework)
    assert len(found.failed) == 1
    assert "test_broken" in next(iter(found.failed))


def test_tests_that_hang_are_ended_and_give_no_verdict(tmp_path):
    found = run(repository(tmp_path, HANGS), tmp_path, limit=2)
    assert found.timed_out
    assert found.problem == "the tests took more than 2 s"


@pytest.mark.parametrize("framework", Framework)
def test_no_test_is_no_verdict(tmp_path, framework):
    assert run(repository(tmp_path), tmp_path, framework).problem


def test_options_for_a_plugin_that_is_missing_are_left_out(tmp_path):
    tree = repository(tmp_path, GOOD)
    (tree / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    assert run(tree, tmp_path, Framework.PYTEST).total == 1


def test_a_suite_that_dies_gives_no_verdict(tmp_path):
    dies = "    def test_dies(self):\n        import os\n        os._exit(0)\n"
    for framework in Framework:
        assert "no report" in run(repository(tmp_path / framework, dies), tmp_path, framework).problem


# --- the comparison -------------------------------------------------------------------------------------------------


@pytest.fixture
def without_install(monkeypatch, tmp_path):
    """Leave the virtual environment out; one test below makes a real one."""
    monkeypatch.setattr(python_tests, "prepare", lambda tree, home, layout, deadline: here())
    monkeypatch.setenv("HOME", str(tmp_path))


def judged(tree, before=None, **limits):
    return judge(tree, before, **({"install_timeout": 250, "timeout": 100} | limits))


def test_before_the_change_failing_tests_are_only_noted(tmp_path, without_install):
    verdict = judged(repository(tmp_path, GOOD, BAD))
    assert (verdict.status, verdict.failed) == (Status.FAILED, ("tests.test_it.T.test_bad",))


def test_what_failed_before_does_not_count_after(tmp_path, without_install):
    tree = repository(tmp_path, GOOD, BAD)
    verdict = judged(tree, judged(tree))
    assert (verdict.status, verdict.new) == (Status.PASSED, ())


def test_a_new_failure_fails(tmp_path, without_install):
    tree = repository(tmp_path, GOOD)
    before = judged(tree)
    write(tree, GOOD, BAD)
    verdict = judged(tree, before)
    assert (verdict.status, verdict.new) == (Status.FAILED, ("tests.test_it.T.test_bad",))


def test_a_failure_that_does_not_come_again_is_chance(tmp_path, without_install):
    tree = repository(tmp_path, GOOD)
    before = judged(tree)
    flag = tmp_path / "seen"
    once = f"    def test_once(self):\n        import pathlib\n        flag = pathlib.Path({str(flag)!r})\n"
    once += "        seen = flag.exists()\n        flag.touch()\n        self.assertTrue(seen)\n"
    write(tree, GOOD, once)
    assert judged(tree, before).status is Status.PASSED


def test_tests_that_no_longer_end_are_a_failure(tmp_path, without_install):
    tree = repository(tmp_path, GOOD)
    before = judged(tree)
    write(tree, GOOD, HANGS)
    verdict = judged(tree, before, timeout=2)
    assert verdict.status is Status.FAILED
    assert "before the change they ended in time" in verdict.reason


def test_tests_that_can_no_longer_run_are_a_failure(tmp_path, without_install):
    tree = repository(tmp_path, GOOD)
    before = judged(tree)
    write(tree)
    assert judged(tree, before).status is Status.FAILED


@pytest.mark.timeout(600)  # two virtual environments
def test_a_project_that_can_no_longer_be_installed_is_a_failure(tmp_path, monkeypatch):
    tree = repository(tmp_path, GOOD)
    (tree / "setup.py").write_text("raise SystemExit('broken')\n")
    subprocess.run(["git", "add", "-A"], cwd=tree, check=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    before = Verdict(status=Status.PASSED, reason="all was well")
    assert judged(tree).status is Status.SKIPPED
    verdict = judged(tree, before)
    assert verdict.status is Status.FAILED
    assert verdict.reason.startswith("the project could not be installed")
    assert verdict.reason.endswith("before the change the tests ran")


def test_what_could_not_be_judged_before_is_not_judged_after(tmp_path):
    verdict = judged(tmp_path, Verdict(status=Status.SKIPPED, reason="no network"))
    assert (verdict.status, verdict.reason) == (Status.SKIPPED, "before the change: no network")


def test_when_every_test_fails_before_nothing_is_proven(tmp_path, without_install):
    verdict = judged(repository(tmp_path, BAD))
    assert verdict.status is Status.SKIPPED
    assert "all 1 tests fail" in verdict.reason


def test_more_failures_than_can_travel_are_not_compared(tmp_path, without_install):
    many = "".join(f"    def test_{i}(self): self.fail()\n" for i in range(501))
    assert "too many to compare" in judged(repository(tmp_path, GOOD, many)).reason


def test_long_names_in_any_script_fit_into_the_result(tmp_path, without_install):
    many = "".join(f"    def test_{'ж' * 150}_{i}(self): self.fail()\n" for i in range(60))
    tree = repository(tmp_path, GOOD)
    before = judged(tree)
    write(tree, GOOD, many)
    verdict = judged(tree, before)
    assert verdict.status is Status.FAILED
    assert verdict.new
    assert len(json.dumps(asdict(verdict))) < 64 * 1024
    assert "too many to compare" in judged(tree).reason


@pytest.mark.parametrize("text", ["{}", "[]", "x", '{"status": "great", "reason": "", "failed": []}'])
def test_a_first_result_that_is_none_is_refused(text):
    with pytest.raises(SystemExit):
        read_before(text)


@pytest.mark.timeout(300)
def test_the_program_makes_a_real_environment_and_writes_its_result(tmp_path):
    tree = repository(tmp_path, GOOD, BAD)
    result = tmp_path / "result.json"
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CAISSON_RESULT": str(result),
        "PYTHONPATH": str(ROOT),
    }
    argv = [sys.executable, "-P", "-m", "sandbox_supervisor", "python-tests", "--install-timeout", "200"]
    done = subprocess.run(argv, cwd=tree, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(result.read_text())
    assert (found["status"], found["framework"], found["total"]) == ("failed", "unittest", 2)
    assert not list(home.glob("python-tests-*")), "the virtual environment is gone afterwards"


class Slow:
    """Standard output that takes its time, so that there is always more to pass on."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.buffer = self
        self._stop = stop

    def write(self, data: object) -> int:
        time.sleep(0.05)
        assert not self._stop(), "it was not given up in time"
        return len(str(data))

    def flush(self) -> None:
        pass


def test_a_program_that_never_stops_talking_is_given_up_in_time(tmp_path, monkeypatch):
    talks = "import os\nwhile True: os.write(1, b'x' * 65536)"
    ends_at = time.monotonic() + 60
    monkeypatch.setattr(sys, "stdout", Slow(lambda: time.monotonic() > ends_at))
    done = processes.run((sys.executable, "-c", talks), cwd=tmp_path, env=os.environ, deadline=Deadline.after(0.5))
    assert done.code is None
