"""One person's way through the console, in a real browser: sign in, watch, answer, rerun, see the delivery."""

import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.running_product import (
    BEAT,
    JOBS,
    REDIS,
    WEB,
    WORKER,
    Product,
    branch_commit,
    product,
    repository,
    until,
)

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE = 90_000  # milliseconds
NOTE_LIVE_WORDS = """() => {
  const word = document.getElementById("live-word");
  window.liveWords = [];
  const note = () => window.liveWords.push(word.textContent);
  new MutationObserver(note).observe(word, {childList: true, characterData: true, subtree: true});
}"""
FLOW = """
apiVersion: caisson/v1
kind: Flow
name: journey
description: Count, ask, fail once, deliver
nodes:
  - key: count
    command: {run: "i=0; until test -e enough; do i=$((i+1)); echo line $i; sleep 0.15; done"}
  - key: ask
    needs: [count]
    agent:
      driver: scripted
      prompt: Ask something.
      playbook:
        - say: <b>I have</b> one question.
        - ask:
            title: Which colour?
            schema:
              type: object
              required: [colour]
              properties:
                colour: {type: string, title: Colour, enum: [red, green]}
                amount: {type: integer, title: Amount, default: 2}
        - say: "Thank you."
  - key: flaky
    needs: [ask]
    command: {run: "case \\"$CAISSON_ATTEMPT\\" in *.1.1) echo not yet; exit 1;; esac; echo fixed > fixed.txt"}
    changes: keep
  - key: deliver
    needs: [flaky]
    delivery: {change_request: {title: "{{ task.title }}"}}
"""


@pytest.fixture(scope="module")
def place():
    folder = Path(tempfile.mkdtemp(prefix="caisson-w-"))
    (folder / "flow.yaml").write_text(FLOW)
    with product(folder / "state") as made:
        made.caisson("run", "/nowhere", "x")  # brings the product up; there is no such repository
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def task(place: Product, page: Page):
    """A task that begins when somebody is signed in and ready to watch."""
    remote = repository(place.state.parent / "r", {"README.md": "hello\n"})
    follower = place.begin("run", str(remote), "Take a journey", "--flow", str(place.state.parent / "flow.yaml"))

    def first() -> dict[str, Any] | None:
        assert follower.poll() is None, follower.communicate()[1]
        with suppress(OSError, httpx.HTTPError):
            return next(iter(place.tasks()), None)
        return None

    yield until(first, what="the task exists")
    follower.kill()
    follower.communicate()


@pytest.fixture(scope="module")
def page(browser: Browser, place: Product):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    opened.goto(place.sign_in_link())
    opened.get_by_role("button", name="Sign in with this link").click()
    yield opened
    context.close()


def shows(page: Page, line: str) -> None:
    page.locator("#transcript").get_by_text(line).first.wait_for()


def serious(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {each['help']}" for each in found if each["impact"] in {"serious", "critical"}]


def test_a_person_watches_through_a_restart_answers_reruns_and_sees_the_delivery(page: Page, place: Product, task):
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(place.url)
    page.get_by_role("link", name="Take a journey").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Take a journey")

    # live, through the deaths of all that stands between the sandbox and the page, one after another and at once
    shows(page, "line 10")
    for victims in ((WEB, REDIS), (JOBS,), (WEB, REDIS, JOBS)):
        page.evaluate(NOTE_LIVE_WORDS)
        assert 0 not in place.kill_at_once(*victims)
        if WEB in victims:
            until(lambda: page.evaluate("liveWords.some((word) => word !== 'live')"), what="the page tells of the loss")
        until(lambda: place.pids(*WORKER) and place.pids(*BEAT), what="worker and beat are back")
        expect(page.locator("#live-word")).to_have_text("live", timeout=PATIENCE)
    (work,) = place.state.glob("sandboxes/*/work/count.1.1")
    (work / "tree" / "enough").touch()
    expect(page.locator('a.node-row[data-node="count"]')).to_have_attribute("data-tone", "ok", timeout=PATIENCE)
    page.goto(f"{place.url}/tasks/{task['id']}?node=count") if "node=" not in page.url else None
    (told,) = place.state.glob("sandboxes/*/log/outputs/count.1.1.stdout")
    shows(page, told.read_text().splitlines()[-1])
    seen = re.findall(r"^line \d+$", page.locator("#transcript").inner_text(), re.MULTILINE)
    assert seen == told.read_text().splitlines()  # each once, in order

    # a question
    expect(page.get_by_role("heading", name="Which colour?")).to_be_visible(timeout=PATIENCE)
    assert serious(page) == []
    page.goto(place.url)
    expect(page.get_by_text("ask asks Which colour?")).to_be_visible(timeout=PATIENCE)
    assert serious(page) == []
    beside = page.context.new_page()
    beside.goto(place.url)
    expect(beside.get_by_text("ask asks Which colour?")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("link", name="Answer").click()
    page.get_by_label("Colour", exact=True).select_option("green")
    page.get_by_role("button", name="Answer").click()
    expect(beside.get_by_text("ask asks Which colour?")).to_be_hidden(timeout=PATIENCE)  # and nobody reloads the list
    beside.close()
    expect(page.get_by_role("heading", name="Which colour?")).to_have_count(0, timeout=PATIENCE)

    # a failure, and another try in the same sandbox
    expect(page.locator("#task-status")).to_contain_text("failed", timeout=PATIENCE)
    page.locator('a.node-row[data-node="flaky"]').click()
    page.get_by_role("button", name="Rerun").click()
    expect(page.locator("#task-status")).to_contain_text("completed", timeout=PATIENCE)

    # the delivery
    expect(page.get_by_text("deliver: delivered")).to_be_visible(timeout=PATIENCE)
    with page.expect_download() as download:
        page.get_by_role("link", name="Patch").click()
    assert "fixed.txt" in Path(download.value.path()).read_text()
    assert faults == []
    found = place.api(f"/tasks/{task['id']}")
    (delivery,) = place.api(f"/tasks/{task['id']}/deliveries")["data"]
    assert branch_commit(found["remote"], found["task_branch"]) == delivery["commit"]


def test_what_an_agent_says_is_text_and_never_markup(page: Page, place: Product, task):
    page.goto(f"{place.url}/tasks/{task['id']}?node=ask")
    expect(page.locator("#transcript")).to_contain_text("<b>I have</b> one question.", timeout=PATIENCE)
    assert page.locator("#transcript b", has_text="I have").count() == 0


@pytest.mark.parametrize("tab", ["session", "files", "diff", "artefacts", "details"])
def test_every_tab_of_the_drawer_answers_and_is_accessible(page: Page, place: Product, task, tab):
    page.goto(f"{place.url}/tasks/{task['id']}?node=flaky&tab={tab}")
    expect(page.locator(".tabs a[aria-current=page]")).to_have_attribute("data-tab", tab)
    assert serious(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_pages_have_no_serious_accessibility_finding(browser: Browser, page: Page, place, task, scheme, width):
    state = page.context.storage_state()
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}, storage_state=state)
    other = context.new_page()
    for path in ("/", f"/tasks/{task['id']}"):
        other.goto(place.url + path)
        assert serious(other) == []
        assert other.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    context.close()


def test_the_task_page_shows_its_graph_without_javascript(browser: Browser, page: Page, place, task):
    state = page.context.storage_state()
    context = browser.new_context(java_script_enabled=False, storage_state=state)
    plain = context.new_page()
    plain.goto(f"{place.url}/tasks/{task['id']}?node=flaky&tab=diff")
    assert plain.locator(".flow-svg a").count() == 4
    assert plain.locator(".code").inner_text().strip().endswith("fixed")
    context.close()


def test_the_keyboard_reaches_a_task_and_its_nodes(page: Page, place: Product, task):
    page.goto(place.url)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/tasks/tsk_"))
    page.locator('a.node-row[data-node="count"]').focus()
    page.keyboard.press("Enter")
    expect(page.locator("#drawer-h")).to_have_text("count")
    page.wait_for_url(re.compile(r"\?node=count$"))
    page.go_back()
    expect(page.locator("#drawer-h")).not_to_have_text("count")


def test_deleting_needs_the_typed_id(page: Page, place: Product, task):
    page.goto(f"{place.url}/tasks/{task['id']}")
    page.get_by_label("More actions").click()
    page.get_by_role("link", name="Delete task and sandbox").click()
    button = page.get_by_role("button", name="Delete task", exact=True)
    expect(button).to_be_disabled()
    page.get_by_label(re.compile("^Type")).fill("something else")
    expect(button).to_be_disabled()
    page.get_by_label(re.compile("^Type")).fill(task["id"])
    button.click()
    until(lambda: place.api(f"/tasks/{task['id']}")["presence"] == "reclaimed", what="the sandbox is removed")
    page.goto(f"{place.url}/tasks/{task['id']}?node=flaky&tab=details")
    expect(page.locator(".facts")).to_contain_text("flaky.2.1")
