"""A page of the test's own that loads the console's real scripts and styles, without a product behind it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, Route

STATIC = Path(__file__).parents[2] / "static"
ORIGIN = "http://console.test"


@contextmanager
def page_with(browser: Browser, document: str, *, part: Callable[[Route], None] | None = None) -> Iterator[Page]:
    """Open ``document``; what asks for a fragment is answered by ``part``, everything else from ``static/``."""

    def serve(route: Route) -> None:
        path = route.request.url.removeprefix(ORIGIN)
        if part and route.request.headers.get("x-fragment"):
            part(route)
        elif path.partition("?")[0] == "/":
            route.fulfill(body=document, content_type="text/html")
        else:
            route.fulfill(path=STATIC / path.lstrip("/"))

    context = browser.new_context()
    context.route("**/*", serve)
    page = context.new_page()
    page.goto(ORIGIN + "/")
    yield page
    context.close()
