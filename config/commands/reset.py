"""``./caisson reset``: delete every task by the ordinary path, wait until it is reclaimed, then remove the state."""

import argparse
import shutil
import sys
import time
from typing import Any

from config.commands import local, product
from config.commands.client import ApiProblem, Client, ConsoleAway
from config.commands.dispatch import Exit
from config.commands.local import say
from config.commands.processes import Layout

PATIENCE = 300.0  # seconds for all sandboxes to be removed
LOOK_EVERY = 1.0


def main(layout: Layout, options: argparse.Namespace) -> int:
    """Remove everything below the state directory, sandboxes first, by the ordinary path. Asks unless ``--yes``."""
    if not options.yes and not _confirmed(layout):
        say("nothing was removed")
        return Exit.OK
    try:
        found = local.bring_up(layout)
        remaining = _delete_all(Client(found.url, found.token))
    except (ApiProblem, ConsoleAway) as problem:
        sys.stderr.write(f"caisson: {problem}\n")
        return Exit.UNREACHABLE
    if remaining:
        sys.stderr.write(
            f"caisson: not removed after {PATIENCE:.0f} s: {', '.join(remaining)}. The state directory "
            "was left as it is; ./caisson doctor says what is wrong, and reset may be run again.\n"
        )
        return Exit.TASK_FAILED
    product.stop(layout)
    shutil.rmtree(layout.state)
    if layout.run != layout.state / "run":
        shutil.rmtree(layout.run, ignore_errors=True)
    say(f"removed {layout.state}")
    return Exit.OK


def _confirmed(layout: Layout) -> bool:
    sys.stderr.write(f"This deletes every task with its sandbox, and {layout.state}. Type yes to go on: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() == "yes"


def _delete_all(client: Client) -> list[str]:
    """Ask for the deletion of every task; give the ids of those that are not reclaimed when patience ends."""
    for task in _standing(client):
        client.delete(f"/tasks/{task['id']}")
        say(f"deleting {task['id']}")
    give_up_at = time.monotonic() + PATIENCE
    while (left := _standing(client)) and time.monotonic() < give_up_at:
        time.sleep(LOOK_EVERY)
    return [task["id"] for task in left]


def _standing(client: Client) -> list[dict[str, Any]]:
    found, cursor = [], None
    while True:
        page = client.get("/tasks", limit=200, cursor=cursor)
        found += [task for task in page["data"] if task["presence"] != "reclaimed"]
        cursor = page["next_cursor"]
        if not cursor:
            return found
