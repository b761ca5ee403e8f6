import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_supervisor.protocol.playbook import (
    Ask,
    Crash,
    Edit,
    EditKind,
    Flood,
    Permission,
    Plan,
    PlanEntry,
    Run,
    Say,
    Step,
    Stream,
    When,
)
from sandbox_supervisor.protocol.playbook_reader import MAX_STEPS, VERBS, read_playbook


def steps(*items):
    found, problems = read_playbook(list(items))
    assert not problems
    return [step.action for step in found]


def paths(*items):
    return [problem.path for problem in read_playbook(list(items))[1]]


def test_steps_are_read_in_order_with_their_values():
    assert steps(
        {"say": "hello"},
        {"plan": [{"content": "look", "status": "in_progress"}, {"content": "do"}]},
        {"edit": {"path": "a/b.txt", "content": "x"}},
        {"edit": {"path": "a.txt", "replace": "x", "with": ""}},
        {"edit": {"path": "a.txt", "delete": True}},
        {"run": "make"},
        {"run": {"command": "make", "expect_exit": 2}},
        {"ask": {"title": "Which?", "options": ["a", "b"]}},
        {"permission": {"title": "May I?"}},
        {"flood": {"bytes": 10, "stream": "stderr"}},
        {"crash": 3},
    ) == [
        Say(text="hello"),
        Plan(entries=(PlanEntry(content="look", status="in_progress"), PlanEntry(content="do", status="pending"))),
        Edit(path="a/b.txt", kind=EditKind.CONTENT, text="x"),
        Edit(path="a.txt", kind=EditKind.REPLACE, old="x", text=""),
        Edit(path="a.txt", kind=EditKind.DELETE),
        Run(command="make"),
        Run(command="make", expect_exit=2),
        Ask(title="Which?", options=("a", "b")),
        Permission(title="May I?"),
        Flood(size=10, stream=Stream.STDERR),
        Crash(exit_code=3),
    ]


def test_a_step_may_depend_on_generation_attempt_and_prompt():
    (step,), problems = read_playbook(
        [{"say": "x", "when": {"generation": [1, 3], "attempt": 2, "prompt_contains": "fail"}}]
    )
    assert not problems
    assert step == Step(action=Say(text="x"), when=When(generations=(1, 3), attempt=2, prompt_contains="fail"))


@pytest.mark.parametrize(
    ("generation", "attempt", "prompt", "holds"),
    [(1, 2, "they fail", True), (2, 2, "they fail", False), (3, 1, "they fail", False), (1, 2, "they pass", False)],
)
def test_a_condition_holds_when_all_of_it_holds(generation, attempt, prompt, holds):
    when = When(generations=(1, 3), attempt=2, prompt_contains="fail")
    assert when.holds(generation=generation, attempt=attempt, prompt=prompt) is holds


def test_no_condition_always_holds():
    assert When().holds(generation=9, attempt=9, prompt="")


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../x", ".git/hooks/post-commit", "a/.GIT/config", "", "a\x00b"]
)
def test_an_edit_stays_inside_the_tree_and_outside_git(path):
    assert paths({"edit": {"path": path, "content": "x"}}) == [(0, "edit", "path")]


def test_a_mistake_in_one_step_hides_none_in_another():
    assert paths({"sya": "x"}, {"say": "fine"}, {"sleep": -1}, 7) == [(0, "sya"), (2, "sleep"), (3,)]


@pytest.mark.parametrize(
    "item",
    [
        {}, {"say": "a", "think": "b"}, {"say": 1}, {"plan": []}, {"plan": [{"content": "x", "status": "soon"}]},
        {"run": ""}, {"run": {"command": "x", "expect_exit": 256}}, {"run": {"command": "x", "expect_exit": True}},
        {"ask": {"title": "x"}}, {"ask": {"title": "x", "options": ["a"], "schema": {}}},
        {"ask": {"title": "x", "options": []}}, {"flood": {"bytes": 1, "stream": ["stdout"]}},
        {"sleep": 3601}, {"sleep": float("nan")}, {"sleep": True}, {"crash": -1}, {"crash": 256},
        {"flood": {"bytes": 0}}, {"flood": {"bytes": 2**31}}, {"flood": {"bytes": 1, "stream": "x"}},
        {"result": []}, {"ignore_cancel": "yes"}, {"fork_daemon": {}}, {"edit": {"path": "x"}},
        {"edit": {"path": "x", "content": "a", "append": "b"}}, {"edit": {"path": "x", "delete": False}},
        {"edit": {"path": "x", "replace": "", "with": "y"}}, {"say": "x", "when": {"generation": 0}},
        {"say": "x", "when": {"generation": "1"}}, {"say": "x", "when": []},
    ],
)  # fmt: skip
def test_a_step_that_cannot_be_played_is_refused(item):
    assert paths(item)


def test_a_wrong_verb_comes_with_the_one_that_was_meant():
    problem = read_playbook([{"thnk": "x"}])[1][0]
    assert problem.hint == "did you mean 'think'?"


def test_a_playbook_is_a_list_of_steps_and_not_endless():
    assert read_playbook({})[1]
    assert read_playbook([])[1]
    assert read_playbook([{"say": "x"}] * (MAX_STEPS + 1))[1]
    assert not read_playbook([{"say": "x"}] * MAX_STEPS)[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.sampled_from(VERBS), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.sampled_from([*VERBS, "when", "x"]), JSON, max_size=2), max_size=3) | JSON)
def test_nothing_that_a_file_can_hold_makes_the_reader_fail(playbook):
    found, problems = read_playbook(playbook)
    assert problems or all(isinstance(step, Step) for step in found)
