"""From an event's commit in the sandbox to its text on a page in a real Chromium, the whole way that it goes.

``python -m bench.event_latency [--lines 200] [--every 0.1]`` prints one JSON object. A command node prints numbered
lines; the page notes when each is drawn; the supervisor's own label says when its event was committed. Both are clocks
of this machine. The peer in the same run: a raw WebSocket from a Python server to the same browser.
"""

import argparse
import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from playwright.sync_api import Browser, Page, sync_playwright
from websockets.asyncio.server import ServerConnection, serve

from bench import machine
from bench.product import Product, product
from config.commands import chromium, local

FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"]
FLOW = """
apiVersion: caisson/v1
kind: Flow
name: bench-event-latency
nodes:
  - key: talk
    command:
      argv:
        - python3
        - -uc
        - |
          import time
          for n in range({lines}):
              print(f"line-{{n:05}}")
              time.sleep({every})
"""
WATCH = """() => {
  window.seen = {};
  const note = () => {
    const words = document.getElementById("transcript").textContent.match(/line-\\d{5}/g) ?? [];
    for (const word of words) window.seen[word] ??= Date.now();
  };
  new MutationObserver(() => requestAnimationFrame(note))
    .observe(document.getElementById("transcript"), { childList: true, subtree: true, characterData: true });
}"""
ECHO = """([url, count]) => new Promise((done) => {
  const found = [];
  const socket = new WebSocket(url);
  socket.onmessage = (message) => requestAnimationFrame(() => {
    found.push(Date.now() - JSON.parse(message.data).at);
    if (found.length === count) { socket.close(); done(found); }
  });
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--every", type=float, default=0.1, help="seconds between two lines")
    asked = parser.parse_args()
    with product() as running:
        link = local.sign_in_link(running.client.url)  # before Playwright, beside whose loop Django asks no database
        flow = running.publish(FLOW.format(lines=asked.lines, every=asked.every))
        ours, peer, version = _measure(running, link, flow, lines=asked.lines, every=asked.every)
    result = {
        "benchmark": "event_latency",
        "machine": machine.describe() | {"chromium": version},
        "lines": asked.lines,
        "every_s": asked.every,
        "events": len(ours),
        "committed_to_visible_ms": _spread(ours),
        "raw_websocket_to_visible_ms": _spread(peer),
        "promise_p99_ms": 150,
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


def _measure(
    running: Product, link: str, flow: str, *, lines: int, every: float
) -> tuple[list[float], list[float], str]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=FLAGS)
        ours = _through_the_product(running, browser, link, flow, lines=lines)
        peer = _raw(browser, count=lines, every=every)
        version = browser.version
        browser.close()
    return ours, peer, version


def _chromium() -> str:
    found = chromium.find()
    if found is None:
        raise SystemExit(chromium.WHY_MISSING)
    return str(found)


def _through_the_product(running: Product, browser: Browser, link: str, flow: str, *, lines: int) -> list[float]:
    page = browser.new_context().new_page()
    page.goto(link)
    page.click("button[type=submit]")
    page.wait_for_load_state()
    task = running.create(flow, "Measure how soon a line is seen")["id"]
    running.graph_when(task, "first_node_at")
    page.goto(f"{running.client.url}/tasks/{task}?node=talk")
    page.wait_for_selector("#transcript")
    page.evaluate(WATCH)
    _wait_for(page, f"line-{lines - 1:05}")
    seen: dict[str, float] = page.evaluate("() => window.seen")
    committed = _committed(running, task)
    running.ended(task)
    running.delete(task)
    # What was printed before the page stood came with its snapshot and says nothing about latency.
    first = sorted(seen)[0]
    fresh = [word for word in committed if word in seen and committed[word] > seen[first]]
    return [seen[word] - committed[word] for word in fresh]


def _wait_for(page: Page, word: str) -> None:
    page.wait_for_function("(word) => window.seen[word]", arg=word, timeout=120_000)


def _committed(running: Product, task: str) -> dict[str, float]:
    """Give the last line of each output event with the moment of its commit, in milliseconds."""
    found: dict[str, float] = {}
    epoch = running.client.get(f"/tasks/{task}/graph")["epoch"]
    after: int = 0
    while True:
        page = running.client.get(f"/tasks/{task}/stream", after=f"{epoch}:{after}", limit=500, kind="output", wait=0)
        for event in page["events"]:
            words = event["data"].get("text", "").split()
            if words:
                found[words[-1]] = datetime.fromisoformat(event["at"]).timestamp() * 1000
            after = event["seq"]
        if not page["events"]:
            return found


def _raw(browser: Browser, *, count: int, every: float) -> list[float]:
    with _talker(count, every) as port:
        page = browser.new_context().new_page()
        found: list[float] = page.evaluate(ECHO, [f"ws://127.0.0.1:{port}", count])
    return found


@contextmanager
def _talker(count: int, every: float) -> Iterator[int]:
    """Serve a WebSocket that says the time, in a thread of its own."""
    ready: list[int] = []
    up, over = threading.Event(), threading.Event()

    async def talk(socket: ServerConnection) -> None:
        for _ in range(count):
            await socket.send(json.dumps({"at": time.time() * 1000}))
            await asyncio.sleep(every)
        await socket.wait_closed()

    async def run() -> None:
        async with serve(talk, "127.0.0.1", 0) as server:
            ready.append(next(iter(server.sockets)).getsockname()[1])
            up.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="talker")
    thread.start()
    up.wait(10)
    try:
        yield ready[0]
    finally:
        over.set()
        thread.join(10)


def _spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 1), "p99": round(cuts[98], 1), "most": round(max(values), 1)}


if __name__ == "__main__":
    main()
