"""What the demo promises, played by hand: its edits fit the project, its tests fail first and pass after the rework."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from registry_app import demo_project
from registry_app.flows.compiler import CompiledFlow, compile_flow
from registry_app.services.seed import FLOWS, SHIPPED
from sandbox_supervisor.protocol import git_rules
from sandbox_supervisor.protocol.flow import Agent, JoinRule, NodeKind
from sandbox_supervisor.protocol.playbook import Edit, EditKind, Result, Run, Sleep
from sandbox_supervisor.protocol.playbook_reader import read_playbook

COMPILED = compile_flow((SHIPPED / "demo.yaml").read_text(encoding="utf-8"))
assert isinstance(COMPILED, CompiledFlow), COMPILED
DEMO = COMPILED.flow
NODES = {node.key: node for node in DEMO.all_nodes()}
AGENTS = [(node, node.agent) for node in DEMO.all_nodes() if node.agent]


def agent_of(key: str) -> Agent:
    agent = NODES[key].agent
    assert agent is not None
    return agent


class Stage:
    """Clones of the demo project in which playbooks are played."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = demo_project.create(folder / "demo")
        path = f"{Path(sys.base_prefix) / 'bin'}:{os.defpath}"
        self.environment = git_rules.environment(path=path, tmp=str(folder), global_config="/dev/null")
        self.environment |= {"CAISSON_ARTEFACTS": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def sh(self, command: str, tree: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-e", "-c", command],
            cwd=tree,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def clone(self, name: str, source: Path | None = None) -> Path:
        tree = self.folder / name
        assert self.sh(f"git clone -q {source or self.project.remote} {tree}", self.folder).returncode == 0
        return tree

    def play(self, key: str, tree: Path, *, generation: int = 1, prompt: str = "") -> None:
        steps, problems = read_playbook(agent_of(key).playbook)
        assert not problems
        for step in steps:
            if not step.when.holds(generation=generation, attempt=1, prompt=prompt):
                continue
            if isinstance(step.action, Edit):
                edit(tree / step.action.path, step.action)
            elif isinstance(step.action, Run):
                done = self.sh(step.action.command, tree)
                expected = step.action.expect_exit
                assert expected is None or done.returncode == expected, (step.action.command, done.stdout, done.stderr)
        self.sh("git add -A; git commit -q --allow-empty -m work", tree)

    def merged(self, name: str, left: Path, right: Path) -> Path:
        tree = self.clone(name, left)
        done = self.sh(f"git pull -q --no-rebase --no-edit {right} main", tree)
        assert done.returncode == 0, done.stderr
        return tree

    def tests(self, tree: Path) -> subprocess.CompletedProcess[str]:
        command = NODES["tests"].command
        assert command is not None
        assert command.run is not None
        return self.sh(command.run, tree)


def edit(path: Path, action: Edit) -> None:
    if action.kind is EditKind.CONTENT:
        path.write_text(action.text, encoding="utf-8")
        return
    assert action.kind is EditKind.REPLACE
    before = path.read_text(encoding="utf-8")
    assert before.count(action.old) == 1
    path.write_text(before.replace(action.old, action.text), encoding="utf-8")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.mark.parametrize("name", FLOWS)
def test_what_ships_compiles(name):
    outcome = compile_flow((SHIPPED / f"{name}.yaml").read_text(encoding="utf-8"))
    assert not isinstance(outcome, list), outcome
    assert outcome.flow.name == name


def test_every_agent_of_the_demo_says_that_it_is_scripted():
    assert AGENTS
    assert all(agent.driver == "scripted" and "(scripted)" in node.title for node, agent in AGENTS)
    assert "No model is used" in DEMO.description


def test_the_demo_has_the_shape_that_it_is_to_show():
    assert NODES["implement-scaling"].needs == NODES["implement-shopping"].needs == ("plan",)
    assert NODES["merge"].kind is NodeKind.MERGE
    assert NODES["review"].join.rule is JoinRule.ALL_DONE
    rework = NODES["review"].rework
    assert rework is not None
    assert rework.node == "implement-shopping"
    assert NODES["sign-off"].kind is NodeKind.APPROVAL
    assert NODES["deliver"].kind is NodeKind.DELIVERY
    assert [node.key for node in DEMO.finally_] == ["cleanup"]


def test_a_person_does_not_wait_longer_than_twenty_seconds_for_the_pauses_of_the_demo():
    pauses = sum(
        step.action.seconds
        for _, agent in AGENTS
        for step in read_playbook(agent.playbook)[0]
        if isinstance(step.action, Sleep)
    )
    assert 0 < pauses <= 20


def test_the_planner_finds_the_project_green_and_leaves_a_plan(stage):
    stage.play("plan", stage.clone("plan"))
    assert "pantry/scale.py" in (stage.folder / "plan.md").read_text()


def test_the_tests_fail_at_first_because_of_one_agent_and_pass_after_the_rework(stage):
    scaling, shopping = stage.clone("scaling"), stage.clone("shopping")
    stage.play("implement-scaling", scaling)
    stage.play("implement-shopping", shopping)
    assert stage.tests(scaling).returncode == 0, "the other agent's work is sound"

    first = stage.merged("first", scaling, shopping)
    assert "FAILED" in stage.tests(first).stderr
    stage.play("review", first, prompt="The test run on the merged tree: failed.")

    stage.play("implement-shopping", shopping, generation=2)
    second = stage.merged("second", scaling, shopping)
    assert stage.tests(second).returncode == 0
    stage.play("review", second, generation=2, prompt="The test run on the merged tree: succeeded.")
    assert stage.sh("git status --porcelain", second).stdout == ""


def test_the_reviewer_decides_by_what_the_tests_said():
    reviewer = agent_of("review")
    steps, _ = read_playbook(reviewer.playbook)

    def verdicts(outcome: str) -> list[str]:
        prompt = reviewer.prompt.replace("{{ nodes.tests.outcome }}", outcome)
        return [
            step.action.value["verdict"]
            for step in steps
            if isinstance(step.action, Result) and step.when.holds(generation=1, attempt=1, prompt=prompt)
        ]

    assert verdicts("failed") == ["changes"]
    assert verdicts("succeeded") == ["approve"]


def test_the_demo_project_is_the_same_everywhere(stage, tmp_path):
    assert demo_project.create(tmp_path / "other").commit == stage.project.commit


def test_making_the_demo_project_again_leaves_it_alone(stage):
    (stage.project.repository / "mine.txt").write_text("kept")
    assert demo_project.create(stage.folder / "demo") == stage.project
    assert (stage.project.repository / "mine.txt").exists()


def test_half_a_demo_project_is_made_whole(tmp_path):
    made = demo_project.create(tmp_path)
    subprocess.run(["rm", "-rf", str(made.remote)], check=True)
    assert demo_project.create(tmp_path) == made


def test_the_demo_projects_own_tests_pass_and_its_tree_is_clean(stage):
    tree = stage.project.repository
    assert stage.tests(tree).returncode == 0
    assert stage.sh("git status --porcelain", tree).stdout == ""
    assert stage.sh("git remote get-url origin", tree).stdout.strip() == str(stage.project.remote)
