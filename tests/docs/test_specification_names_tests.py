"""Every promise of the specification page names tests that exist, or says that it is pending."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "reference" / "specification.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!---|#|given)(.*) \|$", PAGE, re.MULTILINE)
_NAMED = re.compile(r"`([\w/]+\.py)::((?:\w+::)?\w+)`")


@cache
def names(module: str) -> frozenset[str]:
    """Give the tests of a module, those of classes with the class in front."""
    found = set()
    for node in ast.parse((TESTS / module).read_text(encoding="utf-8")).body:
        inner = [(f"{node.name}::", one) for one in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        found |= {prefix + one.name for prefix, one in inner if isinstance(one, ast.AsyncFunctionDef | ast.FunctionDef)}
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def test_every_test_that_is_named_exists() -> None:
    named = _NAMED.findall(PAGE)
    assert len(named) > 80
    missing = [f"{path}::{name}" for path, name in named if not (TESTS / path).is_file() or name not in names(path)]
    assert missing == []


def test_every_promise_names_a_test_or_says_that_it_is_pending() -> None:
    assert [row for row in ROWS if not _NAMED.search(row) and "*pending*" not in row] == []


def test_all_thirty_one_invariants_are_there_in_order() -> None:
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == list(range(1, 32))
