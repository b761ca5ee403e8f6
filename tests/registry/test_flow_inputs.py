import pytest

from registry_app.inputs import resolve_inputs
from sandbox_supervisor.protocol.flow import Flow

FLOW = Flow(
    name="f",
    nodes=(),
    inputs={
        "depth": {"type": "integer", "default": 2, "minimum": 1, "maximum": 5},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
        "note": {"type": "string", "maxLength": 5},
    },
)


def codes(given):
    return [problem.code for problem in resolve_inputs(FLOW, given)[1]]


def test_what_is_left_out_takes_its_default():
    assert resolve_inputs(FLOW, {"note": "x"}) == ({"depth": 2, "mode": "fast", "note": "x"}, [])


def test_an_input_without_a_default_must_be_given():
    assert codes({}) == ["missing_input"]


def test_an_unknown_input_is_named_with_what_was_meant():
    (problem,) = resolve_inputs(FLOW, {"note": "x", "dept": 1})[1]
    assert (problem.code, problem.pointer, problem.hint) == ("unknown_input", "/dept", "Did you mean 'depth'?")


@pytest.mark.parametrize(
    "given",
    [
        {"depth": 0},
        {"depth": 6},
        {"depth": "2"},
        {"depth": True},
        {"depth": 1.5},
        {"mode": "medium"},
        {"note": "longer"},
    ],
)
def test_a_value_that_does_not_fit_is_refused(given):
    assert codes({"note": "x"} | given) == ["wrong_input"]


@pytest.mark.parametrize("depth", [1, 5])
def test_the_edges_fit(depth):
    assert codes({"note": "x", "depth": depth}) == []


def test_every_problem_is_told_at_once():
    assert codes({"depth": 9, "other": 1}) == ["unknown_input", "wrong_input", "missing_input"]


def test_a_refusal_does_not_repeat_the_value():
    (problem,) = resolve_inputs(FLOW, {"note": "hunter2-secret"})[1]
    assert "hunter2" not in problem.message + problem.hint


def test_inputs_of_more_than_64_kib_are_refused():
    assert codes({"note": "x" * 65 * 1024}) == ["inputs_too_large"]
