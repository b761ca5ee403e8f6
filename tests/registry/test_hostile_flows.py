"""Files that are written to hold the compiler up, to fill memory, or to get past it."""

import time

import pytest

from registry_app.flows.compiler import CompiledFlow, compile_flow
from registry_app.flows.problems import MAX_PROBLEMS, Problem

HEAD = "apiVersion: caisson/v1\nkind: Flow\nname: x\n"
PATIENCE = 10.0  # seconds of processor time, many times what each file takes
pytestmark = pytest.mark.timeout(120)


def compiled(source: str) -> CompiledFlow | list[Problem]:
    """Compile within bounds of time and of what is answered."""
    began = time.process_time()
    outcome = compile_flow(source)
    assert time.process_time() - began < PATIENCE
    assert isinstance(outcome, CompiledFlow) or len(outcome) <= MAX_PROBLEMS + 1
    return outcome


def problems(source: str) -> list[Problem]:
    outcome = compiled(source)
    assert not isinstance(outcome, CompiledFlow)
    return outcome


def template(text: str) -> str:
    return HEAD + "nodes:\n  - key: a\n    command:\n      run: |\n        " + text + "\n"


def flow(*nodes: str) -> str:
    return HEAD + f"nodes: [{', '.join(nodes)}]\n"


def node(key: str, *needs: str) -> str:
    return f"{{key: {key}, needs: [{', '.join(needs)}], command: {{run: make}}}}"


@pytest.mark.parametrize(
    "text",
    [
        "{{ 9**(9**(9**9)) }}",
        "{{ 'a' * 9000000000 }}",
        "{{ 'a'|center(9000000000) }}",
        "{% set big = 9**(9**(9**9)) %}",
        "{% filter center(9000000000) %}a{% endfilter %}",
        "{% if task.brief is divisibleby(9**(9**(9**9))) %}{% endif %}",
        "{% macro m(a=9**(9**(9**9))) %}{% endmacro %}",
    ],
)
def test_nothing_in_a_template_is_computed_while_it_is_checked(text):
    assert isinstance(compiled(template(text)), CompiledFlow)


def test_a_template_cannot_have_its_own_escaping_computed():
    (problem,) = problems(template("{% autoescape 9**(9**(9**9)) %}{% endautoescape %}"))
    assert problem.code == "template_syntax"


@pytest.mark.parametrize("text", ["{{ " + "9" * 5000 + " }}", "{{ x" + "|trim" * 5000 + " }}", "{{ " + "[" * 5000])
def test_a_template_that_python_cannot_hold_is_a_problem_not_a_crash(text):
    assert {problem.code for problem in problems(template(text))} == {"template_syntax"}


@pytest.mark.parametrize("depth", [*range(20, 420, 40)])
@pytest.mark.parametrize("piece", ["|trim", ".a", "~1", "+1", "[0]"])
def test_a_template_of_any_depth_is_judged(depth, piece):
    compiled(template("{{ task.brief" + piece * depth + " }}"))


def test_one_long_template_in_many_places_is_read_once():
    nodes = [f"{{key: n{i}, command: {{run: *text}}}}" for i in range(30)]
    first = "{key: a, command: {run: &text '" + "{{ task.brief }}" * 4000 + "'}}"
    assert isinstance(compiled(flow(first, *nodes)), CompiledFlow)


def test_a_long_list_of_unlike_items_is_compared_once_each():
    assert problems(flow(node("a", *map(str, range(20_000)), "b")))


def test_the_first_hundred_of_very_many_problems_are_told_and_that_there_are_more():
    keys = [node(f"aaaa{i}") for i in range(900)]
    found = problems(flow(*keys, node("z", *(f"bbaa{i}" for i in range(15_000)))))
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1].code == "too_many_problems"


@pytest.mark.parametrize(
    "source",
    [
        flow('{key: "a\\n", command: {run: make}}'),
        flow('{key: a, command: {run: make, env: {"A\\n": x}}}'),
        HEAD + 'inputs: {"a\\n": {type: string}}\nnodes: [{key: a, command: {run: make}}]\n',
        flow('{key: a, agent: {driver: "d\\n", prompt: x}}'),
        flow('{key: a, command: {run: make}, artefacts: [{path: x, name: "a\\n"}]}'),
        'apiVersion: caisson/v1\nkind: Flow\nname: "x\\n"\nnodes: [{key: a, command: {run: make}}]\n',
    ],
)
def test_a_newline_at_the_end_of_a_name_is_seen(source):
    assert "wrong_form" in {problem.code for problem in problems(source)}


@pytest.mark.parametrize("key", ["\\e[2J", "a\\nb", "\\u202egnp", "a\\u2028b", "x" * 5000])
def test_a_message_shows_no_control_character_of_the_file_and_stays_short(key):
    source = flow(f'{{key: "{key}", needs: [y], command: {{run: make}}}}', f'{{key: y, needs: ["{key}", zzzz]}}')
    for problem in problems(source):
        assert (problem.message + problem.hint).isprintable()
        assert len(problem.message) < 300
        assert len(problem.hint) < 300


def test_a_cycle_through_a_thousand_nodes_is_named_in_short():
    (problem,) = problems(flow(*(node(f"n{i}", f"n{(i + 1) % 1000}") for i in range(1000))))
    assert problem.code == "cycle"
    assert problem.message.endswith("→ (990 more) → n0.")
    assert len(problem.message) < 300
