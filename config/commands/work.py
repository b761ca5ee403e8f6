"""``./caisson run`` and ``./caisson demo``."""

import argparse
import hashlib
import json
import re
import secrets
import sys
from pathlib import Path
from typing import Any

from config.commands import demo_project, follow, local
from config.commands.client import ApiProblem, Client, ConsoleAway
from config.commands.dispatch import Exit
from config.commands.local import Local, say
from config.commands.processes import Layout

TITLE_LENGTH = 80
BY_STATUS = {401: Exit.NOT_SIGNED_IN, 403: Exit.NOT_SIGNED_IN, 404: Exit.NOT_FOUND, 409: Exit.CONFLICT}


def run(layout: Layout, options: argparse.Namespace) -> int:
    """Start a task on a repository and follow it. Ctrl-C stops following only; the task goes on."""
    return _reported(layout, options, lambda found, client: _run(found, client, options), follow.nobody)


def demo(layout: Layout, options: argparse.Namespace) -> int:
    """Run the demo flow on a project made for it; its sign-off is answered by this command."""
    return _reported(
        layout, options, lambda found, client: start_demo(found, demo_project.create(layout)), follow.first_option
    )


def start_demo(found: Local, project: demo_project.DemoProject) -> str:
    """Create the demo task and give its id."""
    client = Client(found.url, found.token)
    repository = register(client, str(project.repository), push_url=str(project.remote))
    body = {
        "repository": repository,
        "flow": "demo",
        "title": "Show what one task is made of",
        "brief": project.brief,
    }
    return _create(client, body)


def _run(found: Local, client: Client, options: argparse.Namespace) -> str:
    del found
    address = _address(options.repository)
    repository = register(client, address, push_url=_address(options.remote) if options.remote else "")
    body = {
        "repository": repository,
        "flow": _flow(client, options.flow),
        "title": options.brief.strip().splitlines()[0][:TITLE_LENGTH] if options.brief.strip() else "Untitled",
        "brief": options.brief,
    }
    return _create(client, body)


def _reported(layout: Layout, options: argparse.Namespace, start: Any, answer: follow.Answer) -> int:
    """Bring the product up, start a task, follow it, report; one place maps what went wrong to words and statuses."""
    try:
        found = local.bring_up(layout)
        client = Client(found.url, found.token)
        task = follow.Follower(client, start(found, client), answer).to_the_end()
        result = follow.outcome(client, task, console_url=found.url, database=str(layout.state / "caisson.sqlite3"))
    except ApiProblem as problem:
        _tell_problem(problem)
        return Exit.GAP if problem.problem.get("gaps") else BY_STATUS.get(problem.status, Exit.TASK_FAILED)
    except ConsoleAway as away:
        sys.stderr.write(f"caisson: {away}\n")
        return Exit.UNREACHABLE
    follow.tell_outcome(task, result)
    if options.json:
        sys.stdout.write(json.dumps(result) + "\n")
    return Exit.OK if task["status"] == "completed" else Exit.TASK_FAILED


def _create(client: Client, body: dict[str, Any]) -> str:
    made = client.post("/tasks", body, key=f"cli-{secrets.token_hex(12)}")
    for warning in made.get("warnings") or []:
        say(f"note: {warning if isinstance(warning, str) else warning.get('message', warning)}")
    say(f"task {made['id']} on branch {made['task_branch']}")
    return str(made["id"])


def _address(text: str) -> str:
    """Give an absolute path for what is a path, and everything else as it is."""
    if re.match(r"[a-z+]+://|[\w.-]+@[\w.-]+:", text):
        return text
    return str(Path(text).expanduser().resolve())


def register(client: Client, address: str, *, push_url: str) -> str:
    """Make the repository known and give its slug; a local folder is first put on the allow-list (audited)."""
    for each in filter(None, (address, push_url)):
        if Path(each).is_absolute():
            _allow(Path(each))
    name = re.sub(r"[^a-z0-9]+", "-", Path(address.removesuffix("/").removesuffix(".git")).name.lower()).strip("-")
    mark = hashlib.sha256(f"{address} {push_url}".encode()).hexdigest()[:8]
    body = {"slug": f"{name[:40] or 'repository'}-{mark}", "clone_url": address, "push_url": push_url}
    return str(client.post("/repositories", body, key=f"cli-{mark}-{secrets.token_hex(6)}")["slug"])


def _allow(path: Path) -> None:
    from workspaces_app.access import actor_of_user
    from workspaces_app.errors import Refused
    from workspaces_app.services import repositories
    from workspaces_app.services.bootstrap import ensure_workspace_and_admin

    rows = ensure_workspace_and_admin()
    try:
        repositories.allow_root(workspace=rows.workspace, path=str(path), by=actor_of_user(rows.admin))
    except Refused as refused:
        raise ApiProblem(422, {"code": refused.code, "detail": refused.message}) from None


def _flow(client: Client, wanted: str) -> str:
    """Give the name of a flow in the registry; a file is published first, and its version named exactly."""
    path = Path(wanted)
    if "/" not in wanted and path.suffix not in {".yaml", ".yml", ".json"}:
        return wanted
    try:
        source = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ApiProblem(422, {"code": "flow_unreadable", "detail": f"{wanted} cannot be read: {error}"}) from None
    made = client.post("/flows", {"source": source}, key=f"cli-{secrets.token_hex(12)}", If_Match="*")
    return str(made["id"])


def _tell_problem(problem: ApiProblem) -> None:
    sys.stderr.write(f"caisson: {problem}\n")
    for error in problem.problem.get("errors") or []:
        where = error.get("pointer") or error.get("parameter") or ""
        line = f" (line {error['line']})" if error.get("line") else ""
        hint = f" – {error['hint']}" if error.get("hint") else ""
        sys.stderr.write(f"  {where}{line}: {error.get('detail') or error.get('message') or error.get('code')}{hint}\n")
    for gap in problem.problem.get("gaps") or []:
        sys.stderr.write(f"  missing {gap['kind']} {gap['reference']}: {gap['reason']} – {gap['hint']}\n")
