"""A local work tree is compared by what its files hold, never by when they were written."""

import os
from pathlib import Path

import pytest

from tasks_app.services.creation.dirty import uncommitted
from tests.git_remotes import git


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    place = tmp_path / "tree"
    place.mkdir()
    git(place, "init", "-q")
    (place / "a.py").write_text("a = 1\n")
    git(place, "add", "a.py")
    git(place, "commit", "-q", "-m", "first")
    return place


def test_a_file_that_was_only_touched_is_no_change(tree: Path) -> None:
    os.utime(tree / "a.py", (1, 1))
    assert uncommitted(tree) == ""


def test_a_changed_and_a_new_file_are_named(tree: Path) -> None:
    (tree / "a.py").write_text("a = 2\n")
    (tree / "b.py").write_text("b = 1\n")
    assert uncommitted(tree) == "Not committed, so not part of the task: a.py, b.py."
