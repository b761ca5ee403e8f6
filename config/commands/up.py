"""``./caisson up`` and ``./caisson stop``."""

import argparse
import signal
import sys
import threading

from config.commands import local, product
from config.commands.local import Local
from config.commands.processes import Layout
from config.commands.product import Running
from config.commands.terminal import say


def main(layout: Layout, options: argparse.Namespace) -> int:
    """Start the product, say where it is and how to sign in, and stay until it is stopped; Ctrl-C stops it in order.

    So do SIGTERM and the end of the terminal, and each of them at any moment of the start. When the product runs
    already, it is left to whoever started it: this call prints a new sign-in link and ends.
    """
    _end_like_ctrl_c()
    found = local.bring_up(layout)
    if not found.started:
        _welcome(layout, found, options)
        return 0
    ours = None
    try:
        ours = product.running(layout)
        _welcome(layout, found, options)
        if ours:
            _stay(ours)
    except KeyboardInterrupt:  # so early that nothing waited for it yet
        pass
    finally:
        _leave(layout, ours)
    return 0


def stop(layout: Layout, _: argparse.Namespace) -> int:
    """End beat, worker, web and Redis in order. Sandboxes go on and are found again."""
    say("stopped; sandboxes go on" if product.stop(layout) else "nothing was running")
    return 0


def _end_like_ctrl_c() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup means it
            signal.signal(number, signal.default_int_handler)


def _welcome(layout: Layout, found: Local, options: argparse.Namespace) -> None:
    demo = options.demo and _start_demo(found)
    lines = [
        "",
        f"  Caisson {'is up' if found.started else 'was up already'}: {found.url}",
        f"  Sign in (once, within 15 minutes): {local.sign_in_link(found.url)}",
        "  Another link: run this command again in a second terminal.",
    ]
    if options.port and not found.url.endswith(f":{options.port}"):
        lines.append(
            f"  Port {options.port} is not used: to move, ./caisson stop, then ./caisson up --port {options.port}"
        )
    if words := local.safe_mode(layout):
        lines.append(f"  SAFE MODE. {words} ./caisson doctor says more.")
    if demo:
        lines.append("  The demo task is running; it will ask you for its sign-off in the browser.")
    lines.append("  Ctrl-C stops the product; sandboxes stay." if found.started else "  ./caisson stop ends it.")
    sys.stdout.write("\n".join([*lines, "", ""]))
    sys.stdout.flush()


def _start_demo(found: Local) -> bool:
    """Start the demo task; without it the product is still of use."""
    from config.commands import work
    from config.commands.client import ApiProblem, ConsoleAway

    try:
        work.start_demo(found)
    except ApiProblem as problem:
        work.tell_problem(problem)
    except ConsoleAway as away:
        say(f"no demo task: {away}")
    else:
        return True
    return False


def _stay(ours: Running) -> None:
    """Wait for a signal, or for the process manager to end by another hand."""
    wished = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: wished.set())

    def watch() -> None:
        product.follow(ours)
        wished.set()

    threading.Thread(target=watch, name="watch product", daemon=True).start()
    while not wished.wait(timeout=1.0):  # a bounded wait, so that signals are handled on the main thread
        pass


def _leave(layout: Layout, ours: Running | None) -> None:
    """Stop what this call started, unless another hand has stopped it and started the product anew meanwhile."""
    found = product.running(layout)
    if found and ours and found.pid != ours.pid:
        return
    if found:
        say("stopping; sandboxes stay")
    product.stop(layout)
