"""The reference page of the compiler's problems names every code, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "flow-problems.md").read_text(encoding="utf-8")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "registry_app" / "flows").glob("*.py"))


def codes():
    made = re.findall(r'(?:Finding|_find|_whole|problem|fatal)\(\s*"([a-z_0-9]+)"', SOURCE)
    listed = re.findall(r'\[\s*"(yaml_[a-z]+)"', SOURCE)
    chosen = {"one_of", "node_kind", "out_of_bounds", "too_many_nodes", "too_many_problems"}
    return {*made, *listed, *chosen}


def test_every_problem_code_is_explained():
    explained = set(re.findall(r"`([a-z_0-9]+)`", PAGE))
    assert codes() - explained == set()


def test_no_code_is_explained_that_does_not_exist():
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert {code for row in rows for code in re.findall(r"`([a-z_0-9]+)`", row)} - codes() == set()
