import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
UGLY = "import sys\nimport os\nx = {  'a':1 }\nprint( os,sys,x )\n"
NEAT = 'import os\nimport sys\n\nx = {"a": 1}\nprint(os, sys, x)\n'


def tidy(
    tmp_path: Path, files: dict[str, str], raw: dict[str, bytes] | None = None, links: dict[str, str] | None = None
):
    tree = tmp_path / "tree"
    for name, text in files.items():
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for name, content in (raw or {}).items():
        (tree / name).write_bytes(content)
    for name, target in (links or {}).items():
        (tree / name).symlink_to(target)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tree, check=True)
    commit = ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "x"]
    subprocess.run(["git", *commit], cwd=tree, check=True)
    result = tmp_path / "result.json"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path), "CAISSON_RESULT": str(result), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-P", "-m", "sandbox_supervisor", "tidy"]
    done = subprocess.run(argv, cwd=tree, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return tree, json.loads(result.read_text())


def test_code_is_formatted_and_imports_are_sorted(tmp_path):
    tree, result = tidy(tmp_path, {"a.py": UGLY, "b.py": NEAT})
    assert (tree / "a.py").read_text() == NEAT
    assert result == {"changed": 1, "reason": ""}


def test_tidy_code_is_left_alone(tmp_path):
    _, result = tidy(tmp_path, {"a.py": NEAT})
    assert result["changed"] == 0


def test_the_projects_own_settings_are_used(tmp_path):
    tree, _ = tidy(tmp_path, {"a.py": UGLY, "pyproject.toml": "[tool.ruff.format]\nquote-style = 'single'\n"})
    assert "{'a': 1}" in (tree / "a.py").read_text()


@pytest.mark.parametrize(
    "settings", ["[tool.ruff]\nno-such-setting = 1\n", "[tool.ruff]\nrequired-version = '==0.0.1'\n"]
)
def test_settings_that_ruff_cannot_use_are_left_out(tmp_path, settings):
    tree, _ = tidy(tmp_path, {"a.py": UGLY, "pyproject.toml": settings})
    assert (tree / "a.py").read_text() == NEAT


def test_files_that_are_no_python_of_today_stay_and_are_mentioned(tmp_path):
    tree, result = tidy(tmp_path, {"old.py": "print 'hello'\n", "a.py": UGLY})
    assert (tree / "old.py").read_text() == "print 'hello'\n"
    assert result["changed"] == 1
    assert result["reason"].startswith("some files were left alone: Failed to parse old.py")


def test_files_in_another_encoding_stay_and_are_named(tmp_path):
    files = {f"bytes_{i}.py": UGLY for i in range(5)} | {"a.py": UGLY}
    tree, result = tidy(tmp_path, files, raw={f"bytes_{i}.py": b'x = "caf\xe9"\nimport os\n' for i in range(5)})
    assert (tree / "bytes_0.py").read_bytes() == b'x = "caf\xe9"\nimport os\n'
    assert result["changed"] == 1
    assert "bytes_" in result["reason"]
    assert result["reason"].endswith("(and 2 more)")


def test_links_that_lead_in_circles_or_nowhere_are_no_obstacle(tmp_path):
    links = {"loop": "loop", "up": "..", "here": ".", "gone.py": "nothing.py"}
    tree, result = tidy(tmp_path, {"a.py": UGLY}, links=links)
    assert result["changed"] == 1
    assert result["reason"].startswith("some files were left alone: Failed to read gone.py")
    assert (tree / "a.py").read_text() == NEAT


def test_notebooks_are_left_alone_and_no_cache_is_left_behind(tmp_path):
    notebook = (
        '{"cells": [{"cell_type": "code", "source": ["x=1"], "metadata": {}, "outputs": [], "execution_count": null}], '
    )
    notebook += '"metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    tree, result = tidy(tmp_path, {"n.ipynb": notebook, "a.py": NEAT})
    assert result["changed"] == 0
    assert sorted(path.name for path in tree.iterdir()) == [".git", "a.py", "n.ipynb"]
