"""The reference page of the flow format names what the compiler knows."""

import re
from pathlib import Path

from registry_app.flows.shape import KINDS, RESERVED_AT_ROOT, RESERVED_IN_NODE, RESERVED_IN_TIMEOUT, schema

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "flow-format.md").read_text(encoding="utf-8")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "registry_app" / "flows").glob("*.py"))


def codes():
    made = re.findall(r'(?:Finding|_find|_whole|problem|fatal)\(\s*"([a-z_0-9]+)"', SOURCE)
    listed = re.findall(r'\[\s*"(yaml_[a-z]+)"', SOURCE)
    chosen = {"one_of", "node_kind", "out_of_bounds", "too_many_nodes"}
    return {*made, *listed, *chosen}


def test_every_problem_code_is_explained():
    section = PAGE[PAGE.index("## Problems") :]
    explained = set(re.findall(r"`([a-z_0-9]+)`", section))
    assert codes() - explained == set()


def test_no_code_is_explained_that_does_not_exist():
    rows = [line.split("|")[1] for line in PAGE[PAGE.index("## Problems") :].splitlines() if line.startswith("| `")]
    assert {code for row in rows for code in re.findall(r"`([a-z_0-9]+)`", row)} - codes() == set()


def test_every_key_of_the_format_is_on_the_page():
    node = set(schema()["$defs"]["node"]["properties"])
    root = set(schema()["properties"])
    reserved = RESERVED_AT_ROOT | RESERVED_IN_NODE | RESERVED_IN_TIMEOUT
    mentioned = set(re.findall(r"[A-Za-z_]+", PAGE))
    assert (node | root | reserved | set(KINDS)) - mentioned == set()
