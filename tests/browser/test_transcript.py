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


def message(said: str, number: int = 1) -> dict[str, Any]:
    data = {"id": str(number), "role": "agent", "text": said}
    return {"seq": 1, "at": "2026-01-01T00:00:00Z", "kind": "session.message", "data": data}


def drawn(page: Page) -> list[list[str]]:
    """Give the blocks of the message that is shown: the name of each element and its text."""
    found: list[list[str]] = page.evaluate(
        "[...document.querySelectorAll('.prose > *')].map(each => [each.tagName.toLowerCase(), each.textContent])"
    )
    return found


SAID = """# What I did

I made `scale()` exact, with **fractions**
and *no* floats: 2 * 3 * 4 stays, so do src/*.py and a_b_c.

- one
  goes on
  1. two
---
| a | b |
|---|:-:|
| 1 | `x` |
> quoted

````python
def f():
    ```not the end```
````
The end, see https://example.org/a?b=1.
"""
BLOCKS = [
    ["p", "What I did"],
    ["p", "I made scale() exact, with fractions\nand no floats: 2 * 3 * 4 stays, so do src/*.py and a_b_c."],
    ["ul", "one\ngoes ontwo"],
    ["hr", ""],
    ["div", "ab1x"],
    ["blockquote", "quoted"],
    ["pre", "def f():\n    ```not the end```"],
    ["p", "The end, see https://example.org/a?b=1."],
]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_what_an_agent_writes_is_read_as_markdown_however_it_is_cut(shown, size):
    add(shown, *[message(SAID[at : at + size]) for at in range(0, len(SAID), size)])
    assert drawn(shown) == BLOCKS
    assert shown.locator(".prose code").all_text_contents() == ["scale()", "x"]
    assert shown.locator(".prose li").evaluate_all("items => items.map(each => each.dataset.mark)") == ["•", "1."]
    assert shown.locator(".prose th").all_text_contents() == ["a", "b"]
    assert shown.locator(".prose a").get_attribute("href") == "https://example.org/a?b=1"


def test_markup_in_what_an_agent_writes_has_no_effect(shown):
    add(
        shown,
        message("<img src=x onerror=alert(1)> **<b>x</b>** [<i>y</i>](https://example.org/) `<s>`\n\n```\n<hr>\n"),
    )
    assert shown.locator("#transcript :is(img, b, i, s, hr):not(.who b)").count() == 0
    assert drawn(shown) == [
        ["p", "<img src=x onerror=alert(1)> <b>x</b> <i>y</i> (example.org) <s>"],
        ["pre", "<hr>"],
    ]


@pytest.mark.parametrize("end", ["", "`", "``", "```", "```  "])
def test_the_end_of_code_is_not_part_of_it_also_before_its_line_has_ended(shown, end):
    add(shown, message("```json\n{}\n" + end))
    assert drawn(shown) == [["pre", "{}"]]


@pytest.mark.parametrize(
    "words",
    [
        "[x](javascript:alert(1))",
        "[x](data:text/html,y)",
        "[x](https://github.com@example.org/)",
        "https://",
        "[x](//e.org)",
    ],
)
def test_what_is_no_plain_web_address_is_no_link(shown, words):
    add(shown, message(words))
    assert shown.locator(".prose a").count() == 0
    assert drawn(shown) == [["p", words]]


def test_a_link_opens_without_telling_where_it_was_pressed(shown):
    add(shown, message("[the page](https://example.org/x)"))
    link = shown.locator(".prose a")
    assert link.get_attribute("rel") == "noopener noreferrer nofollow"
    assert drawn(shown) == [["p", "the page (example.org)"]]


@pytest.mark.parametrize(
    "unit", ["`", "*", "**", "[", "[a](https://", "https://.", "|", "> ", "- ", "~~~\n", "#", " ", "."]
)
def test_text_made_to_be_slow_to_read_is_read_at_once(shown, unit):
    took = shown.evaluate(
        "said => { const began = performance.now(); transcript.add(said); return performance.now() - began; }",
        [message(unit * (160_000 // len(unit)))],
    )
    assert took < 5000  # a linear reader needs a hundredth of it, a quadratic one minutes


def test_of_an_endless_message_the_end_stays(shown):
    for turn in range(30):
        add(shown, *[message(f"line {turn * 100 + number} {'x' * 100}\n\n") for number in range(100)])
    blocks = drawn(shown)
    assert blocks[0] == ["p", "… what came before is not shown …"]
    assert blocks[-1][1].startswith("line 2999 ")
    assert sum(len(words) for _, words in blocks) < 201_000


def test_an_endless_block_of_code_goes_on_in_another_one_and_ends_where_it_ends(shown):
    add(shown, message("```\n" + "y\n" * 10_000 + "```\nafter\n"))
    *codes, after = drawn(shown)
    assert {name for name, _ in codes} == {"pre"}
    assert "\n".join(words for _, words in codes) == "\n".join(["y"] * 10_000)
    assert after == ["p", "after"]


def diff(old: str, new: str, line: int = 1) -> dict[str, Any]:
    return {"type": "diff", "path": "a.py", "old": old, "new": new, "line": line}


def test_an_edit_shows_the_lines_that_changed_with_their_numbers(shown):
    add(shown, tool(1, kind="edit", content=[diff("a\nb\nc\n", "a\nB\nc\nd\n", line=7)]))
    rows = shown.locator(".edit tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert rows == [
        ["7", "7", "", "a"],
        ["8", "", "−", "b"],
        ["", "8", "+", "B"],
        ["9", "9", "", "c"],
        ["", "10", "+", "d"],
    ]
    assert "+2−1" in (shown.locator("details.tool summary").text_content() or "")


def test_an_edit_that_was_shortened_is_not_counted(shown):
    add(shown, tool(1, kind="edit", content=[diff("a … 900 left out … b", "c")]))
    assert shown.locator("details.tool .add").count() == 0


def test_edits_of_very_many_lines_do_not_fill_the_page(shown):
    add(shown, tool(1, kind="edit", content=[diff("", "\n" * 8000)] * 8))
    assert shown.locator(".edit tr").count() == 300
    assert "7700 more lines are not shown here" in (shown.locator(".edit").first.text_content() or "")
