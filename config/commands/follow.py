"""Follow a task from the outside: a line for each transition, a bar of its nodes, and what came of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from config.commands.client import ApiProblem, Client
from config.commands.terminal import say, tell
from sandbox_supervisor.protocol.states import GRAPH_ENDED, NODE_LETTERS, NodeState

ENDED = frozenset({"completed", "failed", "cancelled"})
LOOK_EVERY = 0.4  # seconds between two looks at a task that has no sandbox to listen to yet
LISTEN = 5.0  # seconds of one long poll
LAST_WORDS = 0.2  # seconds of one when the graph has ended: the task ends a moment later, and no event says so
UNTOLD = {NodeState.WAITING, NodeState.READY, NodeState.STALE}
Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


@dataclass(slots=True)
class Follower:
    """``answer`` is asked about each question that opens; None leaves it to a person in the browser."""

    client: Client
    task_id: str
    answer: Answer
    after: str = ""
    status: str = ""
    has_ended: bool = False  # the graph
    states: dict[str, str] = field(default_factory=dict)

    def to_the_end(self) -> dict[str, Any]:
        """Return the task once it has ended. Raises ApiProblem, ConsoleAway."""
        while True:
            task = self._look()
            if task["status"] in ENDED:
                return task
            if not self._listen():
                time.sleep(LOOK_EVERY)

    def _look(self) -> dict[str, Any]:
        task: dict[str, Any] = self.client.get(f"/tasks/{self.task_id}")
        if task["status"] != self.status:
            self.status = task["status"]
            say(f"task {self.status}")
        return task

    def _listen(self) -> bool:
        """Take one page of events; False when there is no supervisor to listen to at this moment."""
        try:
            if not self.after:
                return self._begin()
            wait = LAST_WORDS if self.has_ended else LISTEN
            page = self.client.get(f"/tasks/{self.task_id}/stream", after=self.after, limit=200, wait=wait)
        except ApiProblem as problem:
            if problem.code in {"epoch_changed", "seq_ahead"}:
                self.after = ""
            elif problem.status < 500 and problem.status not in {404, 409, 410}:
                raise
            return False
        for event in page["events"]:
            if not self._tell(event):
                return False
            self.after = f"{event['epoch']}:{event['seq']}"
        return True

    def _begin(self) -> bool:
        graph = self.client.get(f"/tasks/{self.task_id}/graph")
        self.states = {node["key"]: node["state"] for node in graph["nodes"]}
        self.after = f"{graph['epoch']}:0"  # from the first event on: nothing is told twice, nothing is left out
        return True

    def _tell(self, event: dict[str, Any]) -> bool:
        """Deal with one event; False when it must be dealt with again, since the sandbox is away at this moment."""
        data = event["data"]
        if event["kind"] == "request.opened":
            return self._asked(data)
        if event["kind"] in {"graph.state", "graph.reopened"}:
            self.has_ended = data.get("state") in GRAPH_ENDED
        elif event["kind"] == "node.state":
            self._node(event["node"], data)
        elif event["kind"] == "rework.asked":
            say(f"{data['by']} asks {data['node']} for rework, round {data['round']} of {data['max_rounds']}")
        elif event["kind"] == "delivery.state":
            say(f"delivery {data['state'].replace('_', ' ')} {data.get('commit') or ''}")
        return True

    def _node(self, key: str, data: dict[str, Any]) -> None:
        self.states[key] = data["state"]
        if data["state"] not in UNTOLD:
            why = f": {data['failure']['message']}" if data.get("failure") else ""
            say(f"{self._bar()}  {key} {data['state'].replace('_', ' ')}{why}")

    def _bar(self) -> str:
        letters = "".join(NODE_LETTERS.get(NodeState(state), "?") for state in self.states.values())
        done = sum(
            state in {"succeeded", "failed", "skipped", "cancelled", "unreachable"} for state in self.states.values()
        )
        return f"[{letters.replace('w', '.')}] {done}/{len(self.states)}"

    def _asked(self, request: dict[str, Any]) -> bool:
        given = self.answer(request)
        if given is None:
            say(f"{request['node']} asks: {request['title']} (answer it in the browser)")
            return True
        body = {"verb": "answer", "request": request["id"], "answer": given}
        try:
            self.client.post(f"/tasks/{self.task_id}/commands", body, key=f"answer-{request['id']}")
        except ApiProblem as problem:
            if problem.status >= 500:
                return False
            if problem.code not in {"already_answered", "request_closed"}:  # an earlier run, or a person, was first
                raise
        say(f"{request['node']} asks: {request['title']} → {given.get('option', given)}")
        return True


def first_option(request: dict[str, Any]) -> dict[str, Any] | None:
    """Answer a question with options by its first one; leave every other to a person."""
    options = request.get("options") or []
    return {"option": options[0]["id"]} if options else None


def nobody(_: dict[str, Any]) -> None:
    """Leave every question to a person."""


def facts(task: dict[str, Any], *, console_url: str) -> dict[str, Any]:
    """Give those members of ``--json`` that the task itself knows."""
    retention = task.get("retention") or {}
    return {
        "task": task["id"],
        "status": task["status"],
        "flow": task["flow"],
        "repository": task["repository"],
        "remote": task["remote"],
        "base_commit": task["base_commit"],
        "branch": task["task_branch"],
        "total_s": _seconds(task["created_at"], retention.get("first_terminal_at")),
        "presence": task["presence"],
        "retain_until": retention.get("retain_until"),
        "console_url": f"{console_url}/tasks/{task['id']}",
    }


def outcome(client: Client, task: dict[str, Any]) -> dict[str, Any]:
    """Give those members of ``--json`` that the graph and the deliveries of an ended task know."""
    graph = _graph(client, task["id"])
    deliveries = client.get(f"/tasks/{task['id']}/deliveries")["data"]
    delivered: dict[str, Any] = next((each for each in reversed(deliveries) if each["state"] == "delivered"), {})
    return {
        "commit": delivered.get("commit") or None,
        "change_request": delivered.get("change_request"),
        "nodes": {node["key"]: node["outcome"] or node["state"] for node in graph["nodes"]},
        "attempts": len(graph["attempts"]),
        "max_parallel": graph["max_parallel"],
        "rework_rounds": graph["rework_rounds"],
        "events": graph["seq"],
        "first_node_s": _seconds(task["created_at"], graph["first_node_at"]),
    }


def _graph(client: Client, task_id: str) -> dict[str, Any]:
    empty = {"nodes": [], "attempts": [], "max_parallel": 0, "rework_rounds": 0, "seq": 0, "first_node_at": None}
    for path in ("graph", "snapshot"):
        try:
            found: dict[str, Any] = client.get(f"/tasks/{task_id}/{path}")
        except ApiProblem as problem:
            if problem.status in {401, 403}:
                raise
        else:
            return found
    return empty


def _seconds(start: str | None, end: str | None) -> float | None:
    if not start or not end:
        return None
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), 3)


def tell_outcome(task: dict[str, Any], found: dict[str, Any]) -> None:
    """Say in a few lines what was delivered, or why nothing was."""
    failure = task.get("failure")
    lines = [f"task {found['task']} {found['status']}"]
    if failure:
        lines.append(f"  why: {failure['code']}: {failure['message']}")
    if found["commit"]:
        lines.append(f"  branch {found['branch']} at {found['commit']} on {found['remote']}")
    elif found["status"] == "completed":
        lines.append("  no branch was delivered: nothing had changed, or no delivery node ran")
    lines.append(f"  {found['console_url']}")
    tell("\n".join(lines))
