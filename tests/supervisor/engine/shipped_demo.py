"""The shipped demo flow over the shipped demo project, run by a supervisor alone. Its agents do not dawdle here."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from registry_app import demo_project
from registry_app.flows.compiler import CompiledFlow, compile_flow
from sandbox_supervisor.protocol.flow import Flow, Node
from tests.supervisor.engine.scenario import BRANCH, Ran, Sandbox, specification

SHIPPED = demo_project.SOURCE.parent
ONCE = ("plan", "implement-scaling", "sign-off", "deliver", "cleanup")
TWICE = ("implement-shopping", "merge", "tests", "review")  # what the reviewer sends back, and what follows from it
FILES = {"pantry/scale.py", "pantry/shopping.py", "tests/test_scale.py", "tests/test_shopping.py"}


def flow() -> Flow:
    """Compile the flow as it is shipped, then leave out where its agents only wait for the spectator."""
    compiled = compile_flow((SHIPPED / "demo.yaml").read_bytes())
    assert isinstance(compiled, CompiledFlow), compiled
    made = compiled.flow
    return dataclasses.replace(made, nodes=_briskly(made.nodes), finally_=_briskly(made.finally_))


def _briskly(nodes: Sequence[Node]) -> tuple[Node, ...]:
    return tuple(_brisk(node) for node in nodes)


def _brisk(node: Node) -> Node:
    if node.agent is None or node.agent.playbook is None:
        return node
    playbook = [step for step in node.agent.playbook if "sleep" not in step]
    return dataclasses.replace(node, agent=dataclasses.replace(node.agent, playbook=playbook))


def sandbox(folder: Path) -> Sandbox:
    """Make the sandbox folder of a demo task."""
    project = demo_project.create(folder / "projects")
    spec = specification(project.remote, project.commit, ())
    return Sandbox(folder=folder / "sandbox", spec=dataclasses.replace(spec, flow=flow()))


def check_end(box: Sandbox, ran: Ran, earlier: Sequence[Ran] = ()) -> None:
    """Hold the end of a demo against what it must come to, however often its supervisor died on the way."""
    assert ran.code == 0, "\n".join(ran.lines) + ran.errors
    assert {key: ran.outcome(key) for key in (*ONCE, *TWICE)} == dict.fromkeys((*ONCE, *TWICE), "succeeded")
    for before in earlier:
        assert before.lines == ran.lines[: len(before.lines)]  # what was told stands, in the same place
    assert len([line for line in ran.lines if " rework.asked " in line]) == 1
    assert {key: _generations(ran, key) for key in (*ONCE, *TWICE)} == dict.fromkeys(ONCE, 1) | dict.fromkeys(TWICE, 2)
    base = box.spec.repository.base_commit
    changed = set(box.git("diff", "--name-only", base, BRANCH).split())
    assert changed == FILES | {"pantry/__main__.py"}  # quantity.py was changed, and changed back
    assert box.verify().startswith("sound")
    assert box.wait_empty() == []


def _generations(ran: Ran, key: str) -> int:
    return len({name.split(".")[1] for name in ran.attempts(key)}) or 1  # an approval has no attempt
