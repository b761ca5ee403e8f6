"""Rules of the house that no linter knows."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "config",
    "workspaces_app",
    "policy_app",
    "registry_app",
    "tasks_app",
    "sandbox_providers",
    "sandbox_supervisor",
)
TOP_LEVEL = {
    *ROOMS,
    *("templates", "static", "tests", "bench", "docs", "deploy", ".ci"),
    *("caisson", "manage.py", "pyproject.toml"),
    *("package.json", "package-lock.json", "tsconfig.json", "eslint.config.mjs"),
    *("requirements.in", "requirements.txt", "requirements-sandbox.in", "requirements-sandbox.txt"),
    *("requirements-test.in", "requirements-test.txt"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", ".env.example", ".gitignore"),
}
MODULE_LINES = 400
FUNCTION_LINES = 50
FORBIDDEN_NAMES = {"utils.py", "helpers.py", "common.py", "signals.py", "utils", "helpers", "common"}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).exists()]


def modules() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and "migrations" not in path.parts]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_top_level_holds_only_the_rooms_that_the_house_knows():
    assert {path.parts[0] for path in tracked()} <= TOP_LEVEL


def test_no_module_is_a_drawer_for_everything():
    assert [path for path in tracked() if FORBIDDEN_NAMES & set(path.parts)] == []


def test_no_module_outgrows_a_reader():
    too_long = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {str(path): lines for path, lines in too_long.items() if lines > MODULE_LINES} == {}


def test_no_function_outgrows_a_page():
    found = [
        f"{path}:{function.lineno} {function.name}"
        for path in modules()
        if path.parts[0] != "tests"
        for function in functions(path)
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES
    ]
    assert found == []


def test_every_module_says_what_it_is_for():
    silent = [
        str(path)
        for path in modules()
        if path.parts[0] in ROOMS and not ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    ]
    assert silent == []


def _writes_a_task(node: ast.AST) -> bool:
    """Say whether a status is assigned on a row, or rows of Task are updated."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
        return ast.unparse(node.func.value).startswith("Task.objects")
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return any(
        isinstance(target, ast.Attribute)
        and target.attr in {"status", "presence"}
        and not (isinstance(target.value, ast.Name) and target.value.id == "self")
        for target in targets
    )


def test_only_the_lifecycle_writes_a_tasks_status():
    writers = {
        str(path)
        for path in modules()
        if path.parts[0] == "tasks_app"
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if _writes_a_task(node)
    }
    assert writers == {"tasks_app/services/lifecycle.py"}


def test_only_the_retention_service_makes_an_authority():
    makers = {
        str(path)
        for path in modules()
        if path.parts[0] not in {"tests", "bench"}
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Authority"
    }
    assert makers - {"sandbox_providers/conformance/harness.py"} <= {"tasks_app/services/retention.py"}


def test_only_the_environment_module_reads_the_environment_in_the_control_plane():
    pattern = re.compile(r"os\.(environ\[|environ\.get|getenv)")
    readers = {
        str(path)
        for path in modules()
        if path.parts[0] in {"workspaces_app", "policy_app", "registry_app", "tasks_app"}
        and pattern.search((ROOT / path).read_text(encoding="utf-8"))
    }
    assert readers == set()


def test_nothing_waits_in_a_way_that_may_swallow_a_cancellation():
    """``asyncio.wait_for`` does on Python 3.11; ``asyncio.timeout`` does not."""
    waiters = {
        str(path)
        for path in modules()
        if path.parts[0] in ROOMS and "asyncio.wait_for(" in (ROOT / path).read_text(encoding="utf-8")
    }
    assert waiters == set()


def test_nothing_sleeps_for_time_to_pass_in_the_control_plane():
    sleepers = {
        str(path)
        for path in modules()
        if path.parts[0] in {"workspaces_app", "policy_app", "registry_app"}
        and "time.sleep(" in (ROOT / path).read_text(encoding="utf-8")
    }
    assert sleepers == set()


@pytest.mark.parametrize("package", ["workspaces_app", "policy_app", "registry_app", "tasks_app"])
def test_every_app_of_the_design_is_installed(package):
    from django.conf import settings

    assert package in settings.INSTALLED_APPS


def test_no_model_keeps_what_belongs_to_the_supervisor():
    from django.apps import apps

    forbidden = re.compile(r"node|attempt|session|message|event_log|rework|checkpoint", re.IGNORECASE)
    allowed = {"Session"}  # Django's own browser sessions
    ours = {
        model.__name__ for model in apps.get_models() if model._meta.app_label.endswith("_app")
    }  # a new model must be looked at: add it here only if it stores no graph state
    assert {name for name in ours if forbidden.search(name)} - allowed == set()
