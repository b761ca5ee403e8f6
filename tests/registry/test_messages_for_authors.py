"""What somebody who writes a first flow gets to read for an ordinary mistake."""

import pytest

from registry_app.flows.compiler import CompiledFlow, compile_flow

HEAD = "apiVersion: caisson/v1\nkind: Flow\nname: x\n"
A = "  - key: a\n    command: {run: make, result: {type: object, properties: {ok: {type: boolean}}}}\n"


def said(source: str) -> list[str]:
    outcome = compile_flow(source)
    assert not isinstance(outcome, CompiledFlow)
    return [f"{one.line}: {one.message} {one.hint}" for one in outcome]


def node(*lines: str) -> str:
    return HEAD + "nodes:\n" + A + "  - key: b\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["command: make"], "A mapping, such as {run: make check}."),
        (["agent: do it"], "{driver: opencode, prompt: what it is to do}"),
        (["approval: Deliver?"], "{question: Deliver this?, timeout: 24h}"),
        (["command: {run: x}", "needs: a"], "A list of keys, such as [plan]."),
        (["command: {run: x}", "timeout: 10m"], "{attempt: 10m}"),
        (["command: {run: x}", "timeout: {attempt: 10}"], "Write 30s, 10m"),
        (["command: {run: x}", "retry: 3"], "{limit: 2}"),
        (["command: {run: x}", "when: a.outcome == succeeded"], "{plan.outcome: succeeded}"),
        (["command: {run: x}", "depends_on: [a]"], "Here this is called 'needs'."),
        (["command: {run: x}", "if: x"], "Here this is called 'when'."),
        (["run: make"], "It stands inside command, for instance command: {run: …}."),
        (["script: make"], "It stands inside command, for instance command: {run: …}."),
        (["prompt: hello"], "It stands inside agent, for instance agent: {prompt: …}."),
        (["command:", "  run: make", "  needs: [a]"], "It stands beside 'command', not inside"),
        (["comand: {run: x}"], "Did you mean 'command'?"),
        (["command: {run: 'x {{ nodes.a.result.ok }}'}"], "Add 'a' to needs."),
        (["needs: [a]", "command: {run: 'x {{ nodes.a.ok }}'}"], "Its result has one: write .result.ok."),
        (["needs: [a]", "command: {run: 'x {{ a.result.ok }}'}"], "A node is reached as nodes.a."),
        (["command: {run: '{{ task.brief|trm }}'}"], "There is no filter 'trm'. Did you mean 'trim'?"),
        (["command: {run: '{{ task.brief is deffined }}'}"], "There is no test 'deffined'. Did you mean 'defined'?"),
    ],
)
def test_a_mistake_in_a_node_is_told_with_the_way_to_mend_it(lines, told):
    assert any(told in one for one in said(node(*lines)))


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("nodes:\n  - key: a\n  command: {run: x}\n", 6, "begin in one column, right of its '-'"),
        ("nodes:\n  - key: a\n     command: {run: x}\n", 6, "indented too far"),
        ("nodes:\n- key: a\ncommand: {run: x}\n", 6, "indent it below its '- key: …'"),
        ("nodes:\n\t- key: a\n", 5, "with spaces, not with tabs"),
        ("nodes:\n  - key: a\n    title: Deliver: now\n", 6, "holds ': ' in quotes"),
        ("nodes:\n  - key: a\n    command:\n      run: {{ task.brief }}\n", 7, "begins with {{ in quotes"),
        ("nodes: [{key: a command: {run: x}}]\n", 4, "quotes"),
        ('nodes:\n  - key: a\n    title: "open\n', 7, "not closed"),
        ("jobs: []\n", 4, "Here this is called 'nodes'."),
        ("nodes:\n  a: {command: {run: x}}\n", 4, "A list of nodes, each beginning with - key"),
        ("defaults: {driver: d}\nnodes: []\n", 4, "It stands inside agent"),
        ("inputs: {depth: 3}\nnodes: []\n", 4, "{type: string, default: main}"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_line_and_the_way_to_mend_it(text, line, told):
    assert any(one.startswith(f"{line}: ") and told in one for one in said(HEAD + text)), said(HEAD + text)


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        (
            ["pool: heavy", "title: 3", "timeout: {attempt: 1.5x, silence: 3m}", "command: {run: '{{ nope }}'}"],
            {"not_supported_yet", "wrong_type", "duration", "template_name"},
        ),
        (
            ["when: {c.outcome: succeeded, a.result.ok: {gt: x}}", "needs: [a]", "command: {run: x}"],
            {"unknown_reference", "wrong_type"},
        ),
        (["agent: {driver: D!, prompt: '{{ nope }}'}"], {"wrong_form", "template_name"}),
        (["agent: {driver: scripted, prompt: '{{ nope }}', playbook: 3}"], {"wrong_type", "template_name"}),
        (["approval: {question: '{{ nope }}', timeout: 3}"], {"wrong_type", "template_name"}),
        (["command: {run: x, shell: zsh}", "artefacts: [{path: 1, name: x}]", "rework: {node: a}"], None),
    ],
)
def test_a_wrong_part_of_a_node_hides_nothing_else_that_is_wrong_in_it(lines, codes):
    outcome = compile_flow(node(*lines))
    assert not isinstance(outcome, CompiledFlow)
    found = {one.code for one in outcome}
    assert found == (codes or {"wrong_value", "wrong_type", "missing_key"})


def test_what_a_node_with_a_wrong_part_needs_is_not_guessed():
    found = said(node("needs: a", "join: any_success", "command: {run: '{{ nodes.a.result.ok }}'}"))
    assert len(found) == 1
