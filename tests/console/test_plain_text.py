from datetime import UTC, datetime, timedelta

import pytest

from tasks_app.templatetags import console
from tasks_app.web.plain import visible

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\r\nb", "a\nb"),
        ("\x1b[31mred", "\u241b[31mred"),
        ("a\rb", "a\u240db"),
        ("\x00\x7f", "\u2400\u2421"),
        ("\x9b31m", "\ufffd31m"),
        ("user\u202egpj.exe", "user\ufffdgpj.exe"),
        ("\u2066if admin\u2069", "\ufffdif admin\ufffd"),
        ("שלום", "שלום"),
    ],
)
def test_what_would_act_on_the_reader_is_shown_as_a_sign(text, shown):
    assert visible(text) == shown


def test_values_and_answers_are_made_visible_too():
    assert "\u202e" not in console.pretty_json({"verdict": "\u202etrue"})
    assert console.answer_words({"content": {"a\u202e": "b\u202e"}}) == "a\ufffd: b\ufffd"


def test_times_are_in_the_words_that_the_page_goes_on_with():
    began = NOW - timedelta(hours=1, minutes=3)
    assert console.since(began, NOW) == console.since(began.isoformat(), NOW) == "1 h 03"
    assert console.until(NOW + timedelta(days=2, hours=23), NOW) == "2 d 23 h"
    assert console.until(began, NOW) == "0:00"
    assert console.since("no time", NOW) == console.since(None, NOW) == ""
