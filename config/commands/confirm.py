"""``./caisson confirm-database``: say that a database which may have been restored is the one to go on with."""

import argparse
import sys

from config.commands import local
from config.commands.dispatch import Exit
from config.commands.processes import Layout
from config.commands.product import ProductProblem
from config.commands.terminal import say, tell


def main(layout: Layout, options: argparse.Namespace) -> int:
    """Show what was noticed and what would follow, ask unless ``--yes``, then end the safe mode.

    The product may run or not; when it runs, what waited goes on within a minute. Repeating it changes nothing.
    """
    if not local.database_exists(layout) or not local.safe_mode(layout):
        say("nothing to confirm: database and state directory agree")
        return Exit.OK
    from tasks_app.services import deployment
    from workspaces_app.access import actor_of_user
    from workspaces_app.errors import ControlPlaneError
    from workspaces_app.services.bootstrap import ensure_workspace_and_admin

    sight = deployment.look()
    tell("\n".join([sight.words, *_about(sight.epochs.trouble), *_what_follows()]))
    if not options.yes and not _confirmed():
        say("nothing was confirmed; safe mode goes on")
        return Exit.TASK_FAILED
    try:
        deployment.confirm(by=actor_of_user(ensure_workspace_and_admin().admin))
    except ControlPlaneError as refused:
        raise ProductProblem(refused.message) from None
    say("confirmed: database and state directory agree again")
    return Exit.OK


def _about(trouble: str) -> list[str]:
    from tasks_app.services import deployment

    lines = [f"  database: {local.database_place()}", f"  state directory: {deployment.place()}"]
    return [*lines, f"  why: {trouble}"] if trouble else lines


def _what_follows() -> list[str]:
    from sandbox_providers.contract import ProviderError
    from tasks_app.services import restored

    waiting = restored.waiting()
    lines = [
        f"Tasks, expired or deleted, whose sandbox is then removed: {', '.join(waiting.removals) or 'none'}",
        f"Deliveries that then go on: {', '.join(waiting.deliveries) or 'none'}",
    ]
    try:
        orphans = restored.orphans()
    except ProviderError as error:
        raise ProductProblem(f"the sandboxes cannot be listed: {error.message}") from None
    lines.append("Sandboxes that no task has, and that stay: " + ("" if orphans else "none"))
    return [*lines, *(f"  {orphan.provider} {orphan.name}: {orphan.why}" for orphan in orphans)]


def _confirmed() -> bool:
    sys.stderr.write("Is this database the one to go on with? Type yes to confirm: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() == "yes"
