"""Texts of sandboxes are made fit to be kept, and nothing else about them changes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.texts import clean_line, clean_text, without_nul

ODD = st.text(alphabet=st.sampled_from('\0\\u0"\n/ é'))
DOCUMENTS = st.recursive(
    ODD | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.just("k"), inner)
)


@given(DOCUMENTS)
def test_every_nul_of_a_document_is_replaced_and_nothing_else_is_touched(document):
    def expected(value):
        if isinstance(value, str):
            return value.replace("\0", "\ufffd")
        if isinstance(value, list):
            return [expected(each) for each in value]
        return {key: expected(each) for key, each in value.items()} if isinstance(value, dict) else value

    assert json.loads(without_nul(json.dumps(document).encode())) == expected(document)


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nb\tc", "a b c"), ("a\x1b[31mb", "a[31mb"), ("a\u202eb\0", "ab"), ("  ", ""), ("abcdefgh", "abcd")],
)
def test_a_line_is_one_line_of_visible_characters(text, line):
    assert clean_line(text, 4 if line == "abcd" else 99) == line


def test_a_text_keeps_its_lines_and_loses_control_characters():
    assert clean_text("a\r\nb\rc\td\x07\0", 99) == "a\nb\nc\td"
