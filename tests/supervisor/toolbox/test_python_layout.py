import subprocess
from pathlib import Path

import pytest

from sandbox_supervisor.toolbox.layout import Framework, read_layout
from sandbox_supervisor.toolbox.python_tests import starts

UNITTEST = "import unittest\n\nclass T(unittest.TestCase):\n    def test_x(self): pass\n"
FUNCTION = "def test_x():\n    assert True\n"


def layout(tmp_path: Path, files: dict[str, str]):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return read_layout(tmp_path)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"README.md": "x"}, "no Python files"),
        ({"main.py": "x = 1\n"}, "no test files"),
        ({"main.py": "", "node_modules/p/test_x.py": UNITTEST}, "no test files"),
        ({"tests/test_x.py": "x = 1\n"}, "neither unittest classes nor pytest functions"),
        ({"tests/test_x.py": "print 'old'\n"}, "neither unittest classes nor pytest functions"),
    ],
)
def test_a_repository_whose_tests_cannot_run_says_why(tmp_path, files, reason):
    found = layout(tmp_path, files)
    assert found.framework is None
    assert reason in found.reason


def test_plain_test_classes_need_nothing_but_the_standard_library(tmp_path):
    found = layout(tmp_path, {"tests/test_x.py": UNITTEST})
    assert (found.framework, found.needs_pytest) == (Framework.UNITTEST, False)


@pytest.mark.parametrize("text", [FUNCTION, "import pytest\n", "class TestX:\n    def test_x(self): pass\n"])
def test_functions_and_bare_classes_need_pytest(tmp_path, text):
    found = layout(tmp_path, {"test_x.py": text})
    assert (found.framework, found.needs_pytest) == (Framework.PYTEST, True)


@pytest.mark.parametrize(
    "settings",
    [
        {"pytest.ini": ""},
        {"conftest.py": ""},
        {"pyproject.toml": "[tool.pytest.ini_options]\n"},
        {"setup.cfg": "[tool:pytest]\n"},
    ],
)
def test_a_project_that_configures_pytest_is_tested_with_it_but_can_do_without(tmp_path, settings):
    found = layout(tmp_path, {"tests/test_x.py": UNITTEST} | settings)
    assert (found.framework, found.needs_pytest) == (Framework.PYTEST, False)


def test_what_the_project_asks_for_is_found(tmp_path):
    pyproject = """
[project]
name = "x"
[project.optional-dependencies]
docs = []
tests = []
[dependency-groups]
dev = []
"""
    files = {"test_x.py": FUNCTION, "pyproject.toml": pyproject, "requirements.txt": "", "requirements-test.in": ""}
    found = layout(
        tmp_path, files | {"requirements-test.txt": "", "docs/deep/requirements.txt": "", "requirements-docs.txt": ""}
    )
    assert found.installable
    assert (found.extras, found.groups) == (("tests",), ("dev",))
    assert set(found.requirement_files) == {"requirements.txt", "requirements-test.txt"}


def test_a_project_file_that_cannot_be_read_is_no_project(tmp_path):
    assert not layout(tmp_path, {"test_x.py": FUNCTION, "pyproject.toml": "[[["}).installable


def test_files_that_git_does_not_track_are_not_looked_at(tmp_path):
    layout(tmp_path, {"main.py": ""})
    (tmp_path / "test_x.py").write_text(FUNCTION)
    assert read_layout(tmp_path).framework is None


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "test_x.py").symlink_to("/etc/passwd")
    assert layout(tmp_path, {"main.py": ""}).framework is None


def test_unittest_begins_in_every_top_level_folder_with_tests(tmp_path):
    found = layout(tmp_path, {"tests/a/test_x.py": UNITTEST, "test_y.py": UNITTEST, "odd-name/test_z.py": UNITTEST})
    assert starts(found) == (".", "tests")


@pytest.mark.parametrize(
    "text", ["project = 3", "tool = 3", "[project]\noptional-dependencies = 3", "[[project]]", "="]
)
def test_a_project_file_of_an_unexpected_shape_is_no_accident(tmp_path, text):
    found = layout(tmp_path, {"tests/test_x.py": UNITTEST, "pyproject.toml": text + "\n"})
    assert (found.framework, found.extras, found.groups) == (Framework.UNITTEST, (), ())
