import re
from pathlib import Path

import pytest

from config import env

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(env.KEYS))
def test_every_setting_is_in_the_example_and_in_the_reference(name):
    assert re.search(rf"^#? ?{name}=", EXAMPLE, re.MULTILINE)
    assert f"`{name}`" in REFERENCE


def test_the_example_names_no_setting_that_does_not_exist():
    named = set(re.findall(r"^#? ?([A-Z][A-Z_]+)=", EXAMPLE, re.MULTILINE))
    assert named == set(env.KEYS)


def test_the_reference_says_what_each_default_is():
    for key in env.KEYS.values():
        assert key.shown in REFERENCE
