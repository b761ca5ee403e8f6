"""``static/js/transcript.js`` in a real browser, fed with events by the test."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.served_static import ORIGIN, page_with

DOCUMENT = """<!doctype html><title>t</title>
<link rel="stylesheet" href="/css/console.css">
<link rel="stylesheet" href="/css/pages.css">
<button id="follow">Follow</button>
<select id="show"><option value="">all</option><option value="bad">bad</option></select>
<span id="session-count"></span>
<div class="transcript" id="transcript" style="block-size: 300px"></div>"""

pytestmark = [pytest.mark.browser]


@pytest.fixture(scope="module")
def page(browser: Browser):
    with page_with(browser, DOCUMENT) as opened:
        yield opened


@pytest.fixture
def shown(page: Page) -> Page:
    page.goto(ORIGIN + "/")
    page.evaluate(
        """async () => {
          const { Transcript } = await import("/js/transcript.js");
          window.begin = () => {
            window.listening?.abort();
            window.listening = new AbortController();
            window.transcript = new Transcript(document.getElementById("transcript"), "node", window.listening.signal);
          };
          window.begin();
        }"""
    )
    return page


def output(text: str, stream: str = "stdout") -> dict[str, Any]:
    return {"seq": 1, "at": "2026-01-01T00:00:00Z", "kind": "output", "data": {"stream": stream, "text": text}}


def tool(number: int, **data: Any) -> dict[str, Any]:
    made = {"id": str(number), "kind": "execute", "title": f"call {number}", "status": "completed"} | data
    return {"seq": 1, "at": "2026-01-01T00:00:00Z", "kind": "session.tool", "data": made}


def add(page: Page, *events: dict[str, Any]) -> None:
    page.evaluate("events => window.transcript.add(events)", list(events))


def text(page: Page, selector: str = "#transcript pre") -> str:
    return page.locator(selector).first.text_content() or ""


def test_markup_and_escape_sequences_have_no_effect(shown):
    add(shown, output("<img src=x onerror=alert(1)> \x1b[31mred\x1b[0m \x1b]0;title\x07 done \u202egpj"))
    assert text(shown) == "<img src=x onerror=alert(1)> red  done \ufffdgpj"
    assert shown.locator("#transcript img").count() == 0


def test_a_sequence_or_a_line_end_that_is_cut_in_two_is_still_one(shown):
    add(shown, output("a\r"), output("\nb\x1b[3"), output("1mc\x1b"), output("[0md"))
    assert text(shown) == "a\nbcd"


def test_the_two_channels_of_a_command_do_not_spoil_one_another(shown):
    add(shown, output("a\x1b[3"), output("E", "stderr"), output("1mb"))
    assert text(shown) == "aEb"


def test_of_endless_output_the_end_stays_and_the_page_says_that_something_is_missing(shown):
    for turn in range(30):
        add(shown, *[output(f"line {turn * 100 + number} {'x' * 100}\n") for number in range(100)])
    seen = text(shown)
    assert seen.startswith("… what came before is not shown …\n")
    assert "line 2999 " in seen
    assert "line 0 " not in seen
    assert len(seen) < 201_000


def test_one_line_of_a_hundred_thousand_characters_does_not_widen_the_page(shown):
    add(shown, output("x" * 100_000 + "\n"))
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_very_many_entries_leave_from_the_beginning_and_are_counted(shown):
    note = {"seq": 1, "at": "", "kind": "session.note"}
    for turn in range(5):
        add(shown, *[note | {"data": {"text": f"note {turn * 1000 + number}"}} for number in range(1000)])
    assert shown.locator("#transcript > *").count() == 4001
    assert shown.locator("#transcript > *").first.text_content() == "1000 earlier entries are not shown"
    assert shown.locator("#session-count").text_content() == "5000 entries"


def test_tool_calls_are_grouped_and_a_failed_one_is_open_and_counted(shown):
    add(shown, tool(1), tool(2, status="in_progress"), tool(2, status="failed", exit_code=4, content="why"))
    assert shown.locator("details.tools > summary").text_content() == "2 tool calls1 failed"
    assert shown.locator("details.tool[open] pre").text_content() == "why"
    assert "exit 4" in (shown.locator("details.tool[open] summary").text_content() or "")


def test_hundreds_of_calls_without_a_word_between_come_in_several_groups(shown):
    add(shown, *[tool(number) for number in range(450)])
    assert shown.locator("details.tools").count() == 3
    assert shown.locator("details.tools[open]").count() == 1


def test_thousands_of_calls_do_not_stay_in_the_page(shown):
    for turn in range(10):
        add(shown, *[tool(turn * 500 + number) for number in range(500)])
    assert shown.locator("details.tool").count() <= 4000
    assert "call 4999" in (shown.locator("details.tool").last.text_content() or "")
    assert shown.locator("#transcript > *").first.text_content() == "5 earlier entries are not shown"


def test_it_follows_until_the_reader_scrolls_back_and_again_when_told_to(shown):
    note = {"seq": 1, "at": "", "kind": "session.note", "data": {"text": "x"}}
    place, follow = shown.locator("#transcript"), shown.locator("#follow")
    at_end = "place => place.scrollHeight - place.scrollTop - place.clientHeight < 2"
    add(shown, *[note] * 100)
    assert place.evaluate(at_end)
    place.evaluate("place => { place.scrollTop = 0; }")
    shown.wait_for_function("document.getElementById('follow').getAttribute('aria-pressed') === 'false'")
    add(shown, *[note] * 100)
    assert place.evaluate("place => place.scrollTop") == 0
    follow.click()
    assert place.evaluate(at_end)


def test_a_session_that_begins_anew_does_not_listen_twice(shown):
    shown.evaluate("window.begin()")
    before = shown.evaluate("window.transcript.following")
    shown.locator("#follow").click()
    assert shown.evaluate("window.transcript.following") is not before
