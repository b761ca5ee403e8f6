"""``./caisson reset``: delete every task by the ordinary path, wait until it is reclaimed, then remove the state."""

import argparse
import shutil
import sys
import time
from typing import Any

from config import env, state
from config.commands import local, product
from config.commands.client import ApiProblem, Client, ConsoleAway
from config.commands.dispatch import Exit
from config.commands.processes import Layout
from config.commands.product import ProductProblem
from config.commands.terminal import say, tell

PATIENCE = 300.0  # seconds for all sandboxes to be removed
LOOK_EVERY = 1.0


def main(layout: Layout, options: argparse.Namespace) -> int:
    """Remove what Caisson keeps in the state directory, sandboxes first, by the ordinary path. Asks unless ``--yes``.

    What else lies there stays, and is named. Safe to repeat after an interruption.
    """
    if not options.yes and not _confirmed(layout):
        say("nothing was removed")
        return Exit.TASK_FAILED
    try:
        remaining = _delete_all(layout) if _may_hold_tasks(layout) else []
    except (ApiProblem, ConsoleAway) as problem:
        tell(f"caisson: {problem}")
        return Exit.UNREACHABLE
    if remaining:
        tell(
            f"caisson: not removed after {PATIENCE:.0f} s: {', '.join(remaining)}. The state directory "
            "was left as it is; ./caisson doctor says what is wrong, and reset may be run again."
        )
        return Exit.TASK_FAILED
    product.stop(layout)
    if _may_hold_tasks(layout):
        _forget_epoch(layout)
    _remove(layout)
    return Exit.OK


def _may_hold_tasks(layout: Layout) -> bool:
    """Say whether there may be rows: a database elsewhere, or a file that a start has made."""
    return bool(env.Environment().get(env.DATABASE_URL, "")) or (layout.state / state.DATABASE).exists()


def _forget_epoch(layout: Layout) -> None:
    local.load_django(layout)
    from tasks_app.services import deployment

    deployment.forget()


def _remove(layout: Layout) -> None:
    """Remove our own names only: the state directory may have been somebody's folder before. The database goes last."""
    for name in (*state.FOLDERS, *state.LATER):
        shutil.rmtree(layout.state / name, ignore_errors=True)
    shutil.rmtree(layout.run, ignore_errors=True)
    for name in (f"{state.DATABASE}-wal", f"{state.DATABASE}-shm", state.DATABASE):
        (layout.state / name).unlink(missing_ok=True)
    kept = sorted(path.name for path in layout.state.iterdir())
    if kept:
        say(f"left in {layout.state}, since it is not Caisson's: {', '.join(kept)}")
        return
    layout.state.rmdir()
    say(f"removed {layout.state}")


def _confirmed(layout: Layout) -> bool:
    sys.stderr.write(f"This deletes every task with its sandbox, and {layout.state}. Type yes to go on: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() == "yes"


def _delete_all(layout: Layout) -> list[str]:
    """Ask for the deletion of every task; give the ids of those that are not reclaimed when patience ends."""
    found = local.bring_up(layout)
    client = Client(found.url, found.token)
    tasks = _standing(client)
    if tasks and (words := local.safe_mode(layout)):
        raise ProductProblem(f"nothing can be deleted in safe mode. {words} ./caisson doctor says more.")
    for task in tasks:
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
