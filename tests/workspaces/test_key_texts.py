import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaces_app import keys


def test_a_key_reads_back_what_it_wrote():
    key = keys.make("csn")
    assert keys.read(key.text, "csn") == key


@pytest.mark.parametrize("position", [0, 5, 20, 40, 60, -1])
def test_a_mistyped_character_is_noticed_without_the_database(position):
    text = list(keys.make("csn").text)
    text[position] = "0" if text[position] != "0" else "1"
    assert keys.read("".join(text), "csn") is None


def test_a_sign_in_key_is_no_token():
    assert keys.read(keys.make("csl").text, "csn") is None


@given(st.text(max_size=300))
def test_any_other_text_is_refused(text):
    assert keys.read(text, "csn") is None


def test_a_key_does_not_show_its_secret_by_accident():
    key = keys.make("csn")
    assert key.secret not in repr(key)
