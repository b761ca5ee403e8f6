"""``static/js/parts.js``: what the server draws again never takes away what a person is at."""

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.browser.served_static import page_with

pytestmark = [pytest.mark.browser]


def question(number: int) -> str:
    return (
        f'<section data-request="r{number}"><form><input id="f-{number}" aria-label="Answer {number}"></form></section>'
    )


def answered(count: int) -> str:
    return f'<details class="answered"><summary>{count} earlier</summary></details>'


HEAD = '<a href="/x">Tasks</a><details class="menu"><summary>More</summary><a href="#d">Delete {word}</a></details>'
DOCUMENT = f"""<!doctype html><title>(2) Task</title>
<div data-fragment="questions">{question(1)}{question(2)}{answered(1)}</div>
<div data-fragment="head">{HEAD.format(word="old")}</div>
<div data-fragment="drawer"><a href="?a" data-tab="a">a</a></div>"""


class Server:
    """Answers each fragment with ``parts``; an address that ends in ``late`` is answered when the test says so."""

    def __init__(self) -> None:
        self.parts = {
            "questions": question(2) + question(3) + answered(2),
            "head": HEAD.format(word="new"),
            "drawer": '<a href="?a" data-tab="a">a</a> fresh',
        }
        self.late: list[Route] = []

    def __call__(self, route: Route) -> None:
        if route.request.url.endswith("late"):
            self.late.append(route)
        else:
            route.fulfill(body=self.parts[route.request.headers["x-fragment"]], content_type="text/html")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def page(browser: Browser, server: Server):
    with page_with(browser, DOCUMENT, part=server) as opened:
        yield opened


def fetch(page: Page, part: str, address: str = "/?x") -> object:
    call = "async ([part, address]) => (await import('/js/parts.js')).fetchPart(part, address)"
    return page.evaluate(call, [part, address])


def test_an_answer_that_is_half_given_stays_while_questions_come_and_go(page):
    page.get_by_label("Answer 2").fill("half a")
    assert fetch(page, "questions") is True
    assert page.locator("[data-request]").evaluate_all("all => all.map(each => each.dataset.request)") == ["r2", "r3"]
    assert page.get_by_label("Answer 2").input_value() == "half a"
    assert page.evaluate("document.activeElement.id") == "f-2"
    assert page.locator(".answered").all_inner_texts() == ["2 earlier"]


def test_the_title_counts_the_open_questions(page, server):
    fetch(page, "questions")
    assert page.title() == "(2) Task"
    server.parts["questions"] = answered(3)
    fetch(page, "questions")
    assert page.title() == "Task"


def test_an_open_menu_and_the_focus_stay_where_they_are(page):
    page.get_by_text("More").click()
    page.get_by_role("link", name="Delete old").focus()
    fetch(page, "head")
    assert page.get_by_role("link", name="Delete new").is_visible()
    assert page.evaluate("document.activeElement.textContent") == "Delete new"


def test_an_answer_that_was_overtaken_is_thrown_away(page, server):
    page.evaluate("import('/js/parts.js').then(parts => { window.first = parts.fetchPart('drawer', '/?late'); })")
    page.wait_for_function("window.first !== undefined")
    assert fetch(page, "drawer", "/?soon") is True
    server.late[0].fulfill(body="stale", content_type="text/html")
    assert page.evaluate("window.first") is None
    assert page.locator('[data-fragment="drawer"]').inner_text() == "a fresh"
