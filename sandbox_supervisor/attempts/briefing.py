"""Say what an attempt is told: the process to start, its prompt or command line, its environment."""

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox_supervisor import git
from sandbox_supervisor.attempts import confined
from sandbox_supervisor.attempts.bases import Conflict
from sandbox_supervisor.graph.rows import AttemptRow, NodeRow, State
from sandbox_supervisor.protocol.flow import Agent, Command, Flow, Node, NodeKind
from sandbox_supervisor.protocol.spec import DriverProtocol, TaskSpecification
from sandbox_supervisor.runner.link import Spawn, SpawnKind

SUMMARY_LIMIT = 4000  # characters of a diff summary in a prompt


class Unbriefable(Exception):  # the attempt cannot be told anything
    """The flow asks for something that the specification lacks. ``code`` is a stable word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def context(spec: TaskSpecification, state: State, key: str) -> dict[str, Any]:
    """Give what templates of node ``key`` may see: the task, its inputs, and the nodes before it."""
    row = state.nodes[key]
    return {
        "task": {"id": spec.task.id, "title": spec.task.title, "brief": spec.task.brief, "creator": spec.task.creator},
        "inputs": spec.inputs,
        "nodes": {known: _node_context(state, state.nodes[known]) for known in ancestors(spec.flow, key)},
        "feedback": row.feedback[-1].text if row.feedback else "",
    }


def ancestors(flow: Flow, key: str) -> list[str]:
    """Name every node before ``key``, in definition order; for a ``finally`` node all of the graph proper, too."""
    needs = {node.key: node.needs for node in flow.all_nodes()}
    wanted = {node.key for node in flow.nodes} if key in {node.key for node in flow.finally_} else set()
    open_ = [key]
    while open_:
        found = set(needs[open_.pop()]) - wanted
        wanted |= found
        open_ += sorted(found)
    return [node.key for node in flow.all_nodes() if node.key in wanted and node.key != key]


def _node_context(state: State, row: NodeRow) -> dict[str, Any]:
    winner = state.attempts.get(row.winner or "")
    artefacts = {str(artefact["name"]): artefact for artefact in winner.artefacts} if winner else {}
    return {"result": row.result, "outcome": row.outcome, "artefacts": artefacts}


async def brief(
    spec: TaskSpecification, repo: Path, state: State, attempt: AttemptRow, conflicts: Sequence[Conflict] = ()
) -> Spawn:
    """Give the process to start for an attempt. Raises confined.Unfit and Unbriefable."""
    node = next(node for node in spec.flow.all_nodes() if node.key == attempt.id.node)
    seen = context(spec, state, node.key)
    environment = _environment(spec, attempt)
    if node.command:
        return await _command(node.command, seen, environment)
    agent = node.agent or (node.merge.agent if node.merge else None)
    if agent is None:
        raise Unbriefable("invalid_spec", f"Node {node.key} of kind {node.kind} starts no process.")
    prompt = (await confined.render({"prompt": agent.prompt}, seen))["prompt"]
    if conflicts:
        prompt += "\n\n" + _conflict_section(conflicts)
    prompt += await asyncio.to_thread(_feedback_section, repo, state, state.nodes[node.key])
    return _agent(spec, agent, attempt, prompt, environment)


def driver_of(node: Node) -> str | None:
    """Name what carries out a node's attempts."""
    agent = node.agent or (node.merge.agent if node.merge else None)
    return agent.driver if agent else "command" if node.kind is NodeKind.COMMAND else None


async def _command(command: Command, seen: dict[str, Any], environment: dict[str, str]) -> Spawn:
    templates = {f"env {name}": text for name, text in command.env.items()}
    templates |= {f"argv {position}": text for position, text in enumerate(command.argv)}
    templates |= {"run": command.run} if command.run is not None else {}
    rendered = await confined.render(templates, seen)
    shell = [*shlex.split(command.shell), "-e", "-c", rendered.get("run", "")]
    return Spawn(
        kind=SpawnKind.COMMAND,
        argv=tuple(rendered[f"argv {position}"] for position in range(len(command.argv))) or tuple(shell),
        env=environment | {name: rendered[f"env {name}"] for name in command.env},
        result_schema=command.result,
    )


def _agent(
    spec: TaskSpecification, agent: Agent, attempt: AttemptRow, prompt: str, environment: dict[str, str]
) -> Spawn:
    entry = spec.drivers.get(agent.driver)
    if entry is None:
        raise Unbriefable("unknown_driver", f"The specification has no driver {agent.driver!r}.")
    return Spawn(
        kind=SpawnKind.DRIVER,
        argv=entry.command,
        env=environment | entry.env,
        prompt=prompt,
        result_schema=agent.result,
        permissions=agent.permissions,
        playbook=agent.playbook,
        scripted=entry.protocol is DriverProtocol.SCRIPTED,
        generation=attempt.id.generation,
        n=attempt.id.n,
    )


def _environment(spec: TaskSpecification, attempt: AttemptRow) -> dict[str, str]:
    return {
        "CAISSON_TASK": spec.task.id,
        "CAISSON_NODE": attempt.id.node,
        "CAISSON_GENERATION": str(attempt.id.generation),
        "CAISSON_BASE_COMMIT": attempt.base_commit or "",
    }


def _conflict_section(conflicts: Sequence[Conflict]) -> str:
    lines = ["These files hold conflict markers. Resolve every one of them, keeping the intent of both sides:"]
    for conflict in conflicts:
        sides = f"{conflict.ours.node} ({conflict.ours.commit[:12]}), {conflict.theirs.node}"
        lines.append(f"- {conflict.shown}: {sides} ({conflict.theirs.commit[:12]})")
    return "\n".join(lines)


def _feedback_section(repo: Path, state: State, row: NodeRow) -> str:
    if not row.feedback:
        return ""
    feedback = row.feedback[-1]
    parts = [f"\n\nThis is asked for again. Feedback from {feedback.by}:\n{feedback.text}"]
    earlier = state.attempts.get(feedback.from_attempt or "")
    if earlier and earlier.base_commit and (earlier.result_commit or earlier.wip_commit):
        made = earlier.result_commit or earlier.wip_commit or ""
        parts.append(f"Your tree starts from attempt {earlier.id}, which changed:\n{_summary(repo, earlier, made)}")
    return "\n\n".join(parts)


def _summary(repo: Path, earlier: AttemptRow, made: str) -> str:
    arguments = ["--stat=100", "--no-ext-diff", "--no-textconv", "--no-color", str(earlier.base_commit), made]
    text = git.run(repo, "diff", *arguments).text
    return text[:SUMMARY_LIMIT] or "nothing"
