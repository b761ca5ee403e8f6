"""A graph of twelve nodes that uses everything a graph can do, and what it must come to whatever happens on the way."""

from sandbox_supervisor.protocol.flow import (
    Approval,
    ArtefactRule,
    Changes,
    Command,
    Condition,
    Join,
    JoinRule,
    Merge,
    Node,
    NodeKind,
    Operator,
    Retry,
    Rework,
)
from sandbox_supervisor.protocol.states import FailureClass
from tests.supervisor.engine.scenario import Playbook, agent, command, deliver, keeping

VERDICT = {"type": "object", "required": ["verdict"], "properties": {"verdict": {"enum": ["approve", "changes"]}}}
SUMMARY = {"type": "object", "required": ["summary"], "properties": {"summary": {"type": "string"}}}
FLAKY = 'case "$CAISSON_ATTEMPT" in *.1) exit 1;; esac; echo ok'
JUDGE = 'if test -e fixed.txt; then v=approve; else v=changes; fi; echo "{\\"verdict\\": \\"$v\\"}" > $CAISSON_RESULT'


def nodes(*, agents: bool) -> tuple[list[Node], list[Node]]:
    """Give the twelve nodes; ``agents`` lets scripted agents do the work of some, else commands do."""
    return [
        _plan(agents),
        _implement_a(agents),
        _implement_b(agents),
        Node(
            key="merge", kind=NodeKind.MERGE, needs=("implement-a", "implement-b"), merge=Merge(), changes=Changes.KEEP
        ),
        command("tests", "test -e fixed.txt && cat a.txt b.txt", "merge"),
        command("flaky", FLAKY, "plan", retry=Retry(limit=1, on=(FailureClass.CHECK_FAILED,), backoff=0.05)),
        command(
            "never", "exit 1", "plan", when=(Condition(reference="plan.outcome", operator=Operator.EQ, value="failed"),)
        ),
        _review(),
        command("notes", "cat README.md", "flaky", "never", "merge", join=Join(rule=JoinRule.ANY_SUCCESS)),
        Node(
            key="sign-off",
            kind=NodeKind.APPROVAL,
            needs=("review", "notes"),
            when=(Condition(reference="review.result.verdict", operator=Operator.EQ, value="approve"),),
            approval=Approval(question="Deliver this?", timeout=600),
        ),
        deliver("sign-off"),
    ], [command("cleanup", "true")]


FINAL = {
    "plan": "succeeded",
    "implement-a": "succeeded",
    "implement-b": "succeeded",
    "merge": "succeeded",
    "tests": "succeeded",
    "flaky": "succeeded",
    "never": "skipped",
    "review": "succeeded",
    "notes": "succeeded",
    "sign-off": "succeeded",
    "deliver": "succeeded",
    "cleanup": "succeeded",
}
FILES = ["PLAN.md", "README.md", "a.txt", "b.txt", "fixed.txt", "value.txt"]


def _plan(agents: bool) -> Node:
    artefacts = (ArtefactRule(path="PLAN.md", name="plan"),)
    if agents:
        book: Playbook = [
            {"think": "What is there?"},
            {"edit": {"path": "PLAN.md", "content": "Do a and b.\n"}},
            {"ask": {"title": "Which style?", "options": ["plain", "fancy"]}},
            {"say": "Planned in {{ answers[-1] }} style."},
            {"result": {"summary": "do a and b"}},
        ]
        return agent("plan", book, artefacts=artefacts, options={"result": SUMMARY})
    script = "echo 'Do a and b.' > PLAN.md; echo '{\"summary\": \"do a and b\"}' > $CAISSON_RESULT"
    return keeping("plan", script, artefacts=artefacts, options={"result": SUMMARY})


def _implement_a(agents: bool) -> Node:
    if agents:
        book: Playbook = [
            {"say": "Working on a."},
            {"edit": {"path": "a.txt", "content": "a\n"}},
            {"edit": {"path": "fixed.txt", "content": "yes\n"}, "when": {"generation": [2, 3]}},
            {"run": {"command": "cat a.txt"}},
        ]
        return agent("implement-a", book, "plan", options={"prompt": "Do: {{ nodes.plan.result.summary }}"})
    return keeping(
        "implement-a", 'echo a > a.txt; if [ "$CAISSON_GENERATION" -gt 1 ]; then echo yes > fixed.txt; fi', "plan"
    )


def _implement_b(agents: bool) -> Node:
    if agents:
        return agent("implement-b", [{"edit": {"path": "b.txt", "content": "b\n"}}, {"say": "b is there."}], "plan")
    return keeping("implement-b", "echo b > b.txt; echo '{{ nodes.plan.result.summary }}'", "plan")


def _review() -> Node:
    return Node(
        key="review",
        kind=NodeKind.COMMAND,
        needs=("merge", "tests"),
        join=Join(rule=JoinRule.ALL_DONE),
        command=Command(run=JUDGE, result=VERDICT),
        rework=Rework(
            node="implement-a",
            when=(Condition(reference="result.verdict", operator=Operator.EQ, value="changes"),),
            max_rounds=2,
        ),
    )
