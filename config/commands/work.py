"""``./caisson run`` and ``./caisson demo``."""

import argparse
import hashlib
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from config.commands import demo_project, follow, local
from config.commands.client import ApiProblem, Client, ConsoleAway
from config.commands.dispatch import Exit
from config.commands.local import Local
from config.commands.processes import Layout
from config.commands.terminal import say, tell

TITLE_LENGTH = 80
LONGEST_SOURCE = 256 * 1024  # bytes of a flow file
BY_STATUS = {
    **dict.fromkeys((400, 413, 422), Exit.USAGE),
    **dict.fromkeys((401, 403), Exit.NOT_SIGNED_IN),
    404: Exit.NOT_FOUND,
    **dict.fromkeys((409, 412), Exit.CONFLICT),
    503: Exit.UNREACHABLE,
}
Start = Callable[[Local], dict[str, Any]]


class Unusable(Exception):
    """What the command was given cannot be used; the message says what and why."""


def run(layout: Layout, options: argparse.Namespace) -> int:
    """Start a task on a repository and follow it. Ctrl-C stops following only; the task goes on."""
    return _reported(layout, options, lambda found: _run(found, options), follow.nobody)


def demo(layout: Layout, options: argparse.Namespace) -> int:
    """Run the demo flow on a project made for it; its sign-off is answered by this command."""
    return _reported(layout, options, start_demo, follow.first_option)


def start_demo(found: Local) -> dict[str, Any]:
    """Create the demo task and give it."""
    client, project = Client(found.url, found.token), demo_project.create()
    repository = register(client, str(project.repository), push_url=str(project.remote))
    body = {
        "repository": repository,
        "flow": "demo",
        "title": "Show what one task is made of",
        "brief": project.brief,
    }
    return _create(client, body)


def _run(found: Local, options: argparse.Namespace) -> dict[str, Any]:
    client = Client(found.url, found.token)
    repository = register(
        client, _address(options.repository), push_url=_address(options.remote) if options.remote else ""
    )
    body = {
        "repository": repository,
        "flow": _flow(client, options.flow),
        "title": options.brief.strip().splitlines()[0][:TITLE_LENGTH],
        "brief": options.brief,
    }
    return _create(client, body)


def _reported(layout: Layout, options: argparse.Namespace, start: Start, answer: follow.Answer) -> int:
    """Bring the product up, start a task, follow it, report; one place maps what went wrong to words and statuses.

    ``options.result`` is what is known at any moment, whatever happens next.
    """
    known: dict[str, Any] = options.result
    try:
        _check(options)
        found = local.bring_up(layout)
        known["database"] = local.sqlite_file()
        task = start(found)
        known.update(follow.facts(task, console_url=found.url))
        client = Client(found.url, found.token)
        task = follow.Follower(client, task["id"], answer).to_the_end()
        known.update(follow.facts(task, console_url=found.url) | follow.outcome(client, task))
    except Unusable as unusable:
        tell(f"caisson: {unusable}")
        return Exit.USAGE
    except ApiProblem as problem:
        tell_problem(problem)
        return Exit.GAP if problem.problem.get("gaps") else BY_STATUS.get(problem.status, Exit.TASK_FAILED)
    except ConsoleAway as away:
        tell(f"caisson: {away}")
        return Exit.UNREACHABLE
    follow.tell_outcome(task, known)
    return Exit.OK if task["status"] == "completed" else Exit.TASK_FAILED


def _create(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = client.post("/tasks", body, key=f"cli-{secrets.token_hex(12)}")
    for warning in made.get("warnings") or []:
        say(f"note: {warning if isinstance(warning, str) else warning.get('message', warning)}")
    say(f"task {made['id']} on branch {made['task_branch']}")
    return made


def _check(options: argparse.Namespace) -> None:
    """Refuse what could mean nothing, before anything is started. Raises Unusable."""
    names = {"repository": "REPO", "brief": "BRIEF", "flow": "--flow", "remote": "--remote"}
    for member, name in names.items():
        text = getattr(options, member, None)
        if text is None:
            continue
        if not text.strip():
            raise Unusable(f"{name} is empty.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unusable(f"{name} is not valid UTF-8: {text!r}.") from None


def _address(text: str) -> str:
    """Give an absolute path for what is a path, and everything else as it is. Raises Unusable."""
    if re.match(r"[a-z+]+://|[\w.-]+@[\w.-]+:", text):
        return text
    try:
        return str(Path(text).expanduser().resolve())
    except RuntimeError as error:  # no such user's home, or links that lead in a circle
        raise Unusable(f"{text} is no path that can be followed: {error}") from None


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
    made = client.post("/flows", {"source": _source(path)}, key=f"cli-{secrets.token_hex(12)}", If_Match="*")
    return str(made["id"])


def _source(path: Path) -> str:
    """Read a flow file. Raises Unusable."""
    try:
        with path.expanduser().open("rb") as file:
            content = file.read(LONGEST_SOURCE + 1)
        if len(content) > LONGEST_SOURCE:
            raise Unusable(f"The flow file {path} is larger than 256 KiB.")
        return content.decode()
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise Unusable(f"The flow file {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def tell_problem(problem: ApiProblem) -> None:
    """Say what the API refused, with every place that it names."""
    lines = [f"caisson: {problem}"]
    for error in problem.problem.get("errors") or []:
        if error.get("detail") == str(problem) and not error.get("hint"):
            continue  # it is the sentence above
        where = error.get("pointer") or error.get("parameter") or ""
        line = f" (line {error['line']})" if error.get("line") else ""
        hint = f" – {error['hint']}" if error.get("hint") else ""
        lines.append(f"  {where}{line}: {error.get('detail') or error.get('message') or error.get('code')}{hint}")
    lines += [
        f"  missing {gap['kind']} {gap['reference']}: {gap['reason']} – {gap['hint']}"
        for gap in problem.problem.get("gaps") or []
    ]
    tell("\n".join(lines))
