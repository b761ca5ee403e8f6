"""``./caisson up`` and ``./caisson stop``."""

import argparse
import signal
import sys
import threading

from config.commands import local, product
from config.commands.local import say
from config.commands.processes import Layout


def main(layout: Layout, options: argparse.Namespace) -> int:
    """Start the product, say where it is and how to sign in, and stay until it is stopped; Ctrl-C stops it in order.

    When it runs already, it is left to whoever started it: this call prints a new sign-in link and ends.
    """
    found = local.bring_up(layout)
    if options.demo:
        from config.commands import demo_project, work

        work.start_demo(found, demo_project.create(layout))
    sys.stdout.write(_welcome(layout, demo=options.demo, started=found.started))
    sys.stdout.flush()
    if not found.started:
        return 0
    _stay(layout)
    return 0


def stop(layout: Layout, _: argparse.Namespace) -> int:
    """End beat, worker, web and Redis in order. Sandboxes go on and are found again."""
    say("stopped; sandboxes go on" if product.stop(layout) else "nothing was running")
    return 0


def _welcome(layout: Layout, *, demo: bool, started: bool) -> str:
    lines = [
        "",
        f"  Caisson {'is up' if started else 'was up already'}: {layout.url}",
        f"  Sign in (once, within 15 minutes): {local.sign_in_link(layout)}",
        "  Another link: run this command again in a second terminal.",
    ]
    if demo:
        lines.append("  The demo task is running; it will ask you for its sign-off in the browser.")
    lines.append("  Ctrl-C stops the product; sandboxes stay." if started else "  ./caisson stop ends it.")
    return "\n".join([*lines, "", ""])


def _stay(layout: Layout) -> None:
    """Wait for a signal, or for the process manager to end by another hand, then stop what is still there."""
    wished = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: wished.set())

    def watch() -> None:
        product.follow(layout)
        wished.set()

    threading.Thread(target=watch, name="watch product", daemon=True).start()
    while not wished.wait(timeout=1.0):  # a bounded wait, so that signals are handled on the main thread
        pass
    if product.running(layout):
        say("stopping; sandboxes stay")
        product.stop(layout)
