import pytest

from sandbox_supervisor.graph.conditions import MISSING, dig, judge, same
from sandbox_supervisor.protocol.flow import Retry
from sandbox_supervisor.protocol.states import FailureClass
from tests.supervisor.graph.play import Play, command, flow, joined, when


def verdict(operator, wanted, value):
    found = judge((when("r", operator, wanted),), lambda _: value)
    return found.problem or found.holds


@pytest.mark.parametrize(
    ("operator", "wanted", "value", "expected"),
    [
        ("eq", "approve", "approve", True),
        ("eq", "approve", "changes", False),
        ("eq", 1, True, False),
        ("eq", True, 1, False),
        ("eq", 1, 1.0, True),
        ("eq", None, None, True),
        ("eq", [1, 2], (1, 2), True),
        ("eq", {"a": 1}, {"a": 1}, True),
        ("eq", {"a": 1}, {"a": True}, False),
        ("eq", "", MISSING, "missing_reference"),
        ("in", ["a", "b"], "b", True),
        ("in", ["a", "b"], "c", False),
        ("in", [0, 1], False, False),
        ("in", ["a"], MISSING, "missing_reference"),
        ("not", "a", "b", True),
        ("not", "a", "a", False),
        ("not", ["a", "b"], "b", False),
        ("not", ["a", "b"], "c", True),
        ("not", "a", MISSING, "missing_reference"),
        ("gt", 3, 4, True),
        ("gt", 3, 3, False),
        ("lt", 3, 2.5, True),
        ("lt", 3, 3, False),
        ("gt", 3, "4", "condition_type"),
        ("lt", 3, True, "condition_type"),
        ("gt", "3", 4, "condition_type"),
        ("gt", 3, MISSING, "missing_reference"),
        ("exists", True, 0, True),
        ("exists", True, None, True),
        ("exists", True, MISSING, False),
        ("exists", False, MISSING, True),
        ("exists", False, "x", False),
    ],
)
def test_a_condition_compares_as_json_does_and_never_guesses(operator, wanted, value, expected):
    assert verdict(operator, wanted, value) == expected


def test_all_conditions_must_hold():
    both = (when("a", "eq", 1), when("b", "eq", 2))
    assert judge(both, {"a": 1, "b": 2}.get).holds
    assert judge(both, {"a": 1, "b": 3}.get).reference == "b"


def test_a_wrong_reference_wins_over_a_false_condition_in_any_order():
    values = {"a": 0}
    for names in (("a", "b"), ("b", "a")):
        conditions = tuple(when(name, "eq", 1) for name in names)
        assert judge(conditions, lambda name: values.get(name, MISSING)).problem == "missing_reference"


def test_a_path_ends_at_the_first_step_that_leads_nowhere():
    assert dig({"a": {"b": 1}}, ["a", "b"]) == 1
    assert dig({"a": {"b": None}}, ["a", "b"]) is None
    assert dig({"a": {"b": 1}}, ["a", "b", "c"]) is MISSING
    assert dig([1, 2], ["0"]) is MISSING


def test_different_types_are_never_the_same():
    assert not same("1", 1)
    assert not same([], {})
    assert not same(None, False)


def test_a_true_condition_lets_the_node_run():
    play = Play(flow(command("a"), command("b", "a", when=(when("a.result.n", "gt", 2),))))
    play.run("a", result={"n": 3})
    play.is_(b="ready")


def test_a_false_condition_skips_the_node_and_says_which():
    play = Play(flow(command("a"), command("b", "a", when=(when("a.result.n", "gt", 2),))))
    play.run("a", result={"n": 2})
    play.is_(b="skipped")
    assert play.graph.state == "succeeded"
    assert play.events[-2].data["reason"] == "condition: a.result.n"


def test_a_missing_field_fails_the_node():
    play = Play(flow(command("a"), command("b", "a", when=(when("a.result.n", "eq", 2),))))
    play.run("a", result={"m": 2})
    play.is_(b="failed")
    assert play.row("b").failure.code == "missing_reference"
    assert play.row("b").failure.facts == {"reference": "a.result.n"}


def test_a_reference_to_a_skipped_node_fails_and_exists_false_may_ask_for_it():
    no = (when("inputs.x", "eq", 1),)
    made = flow(
        command("a", when=no),
        command("b"),
        command("c", "a", "b", when=(when("a.result.n", "eq", 1),)),
        command("d", "a", "b", when=(when("a.result.n", "exists", False),)),
    )
    play = Play(made, inputs={"x": 0})
    play.run("b")
    play.is_(a="skipped", c="failed", d="ready")


def test_an_outcome_can_be_asked_of_every_ended_node():
    made = flow(
        command("a"),
        command("b", "a", join=joined("all_done"), when=(when("a.outcome", "eq", "failed"),)),
        command("c", "a", join=joined("all_done"), when=(when("a.outcome", "eq", "succeeded"),)),
    )
    play = Play(made)
    play.fail("a")
    play.is_(b="ready", c="skipped")


def test_inputs_are_read_from_the_frozen_task():
    play = Play(flow(command("a", when=(when("inputs.deep.n", "in", [1, 2]),))), inputs={"deep": {"n": 2}})
    play.is_(a="ready")


def test_an_earlier_attempts_result_does_not_leak_into_the_later_one():
    retry = Retry(limit=1, on=(FailureClass.CHECK_FAILED,))
    made = flow(command("a", retry=retry), command("b", "a", when=(when("a.result.n", "eq", 1),)))
    play = Play(made)
    play.fail("a")
    play.tick(10)
    play.run("a", result=None)
    assert play.row("a").result is None
    assert play.row("b").failure.code == "missing_reference"


def test_a_node_that_has_not_ended_yet_has_no_result_to_refer_to():
    made = flow(
        command("a"),
        command("b"),
        command("c", "a", "b", join=joined("any_success"), when=(when("b.result.n", "eq", 1),)),
    )
    play = Play(made)
    play.start("b")
    play.run("a")
    assert play.row("c").failure.code == "missing_reference"


def test_a_failed_node_has_an_outcome_but_no_result():
    made = flow(command("a"), command("b", "a", join=joined("all_done"), when=(when("a.result.n", "exists", False),)))
    play = Play(made)
    play.fail("a")
    play.is_(b="ready")
