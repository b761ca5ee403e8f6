import time
from typing import Any

import pytest

from registry_app.flows.compiler import CompiledFlow, compile_flow
from registry_app.flows.problems import Problem
from registry_app.flows.reading import MAX_BYTES, Document, read_document

HEAD = "apiVersion: caisson/v1\nkind: Flow\nname: x\n"


def codes(source: str | bytes) -> list[str]:
    outcome = compile_flow(source)
    return [] if isinstance(outcome, CompiledFlow) else [problem.code for problem in outcome]


def problems_of(source: str | bytes) -> list[Problem]:
    """Give what is wrong with a flow file that must not compile."""
    outcome = compile_flow(source)
    assert not isinstance(outcome, CompiledFlow)
    return outcome


def data_of(text: str) -> Any:
    """Give the plain data of a text that must be readable."""
    document = read_document(text)
    assert isinstance(document, Document), document
    return document.data


def chain(count):
    lines = ["  - {key: n0, command: {run: make}}"]
    lines += [f"  - {{key: n{i}, needs: [n{i - 1}], command: {{run: make}}}}" for i in range(1, count)]
    return HEAD + "nodes:\n" + "\n".join(lines) + "\n"


def test_a_file_of_exactly_the_limit_is_read():
    text = HEAD + "nodes: [{key: a, command: {run: make}}]\n"
    assert codes(text + "#" * (MAX_BYTES - len(text))) == []


def test_one_byte_more_is_refused_unread():
    assert codes("#" * (MAX_BYTES + 1)) == ["file_too_large"]


def test_two_megabytes_of_yaml_are_refused_at_once():
    began = time.perf_counter()
    assert codes(b"a: b\n" * 400_000) == ["file_too_large"]
    assert time.perf_counter() - began < 5


def test_a_thousand_nodes_compile():
    assert codes(chain(1000)) == []


def test_a_thousand_and_one_nodes_are_too_many():
    assert codes(chain(1001)) == ["too_many_nodes"]


@pytest.mark.parametrize(
    ("raw", "line"), [(b"\xff\xfea\x00", 1), (b"name: x\nb: \xc3\x28\n", 2), ("na\u00efve".encode("latin-1"), 1)]
)
def test_text_that_is_not_utf_8_is_refused_with_its_line(raw, line):
    problem = problems_of(raw)[0]
    assert (problem.code, problem.line) == ("encoding", line)


def test_a_byte_order_mark_is_tolerated():
    assert codes(b"\xef\xbb\xbf" + (HEAD + "nodes: [{key: a, command: {run: make}}]\n").encode()) == []


@pytest.mark.parametrize("text", ["a\x00b", "a: \x07", "a: \ud800"])
def test_characters_that_yaml_forbids_are_a_problem_not_a_crash(text):
    assert codes(text)


@pytest.mark.parametrize(
    "text",
    ["[" * 2000, "{a: " * 2000, "- " * 2000, "? " * 2000, "a:\n" + "\n".join(" " * i + "- a:" for i in range(1, 300))],
)
def test_deep_nesting_is_a_problem_not_a_crash(text):
    assert codes(text)


def test_twenty_levels_are_read():
    assert data_of("[" * 20 + "]" * 20) == [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]


@pytest.mark.parametrize(
    ("plain", "value"),
    [
        ("no", "no"), ("on", "on"), ("y", "y"), ("1:30", "1:30"), ("2020-01-01", "2020-01-01"), ("0b1", "0b1"),
        ("1_000", "1_000"), ("=", "="), ("<<", "<<"), ("true", True), ("FALSE", False), ("null", None), ("~", None),
        ("012", 12), ("0o14", 12), ("0x1F", 31), ("3.10", 3.1), (".5", 0.5), ("1e3", 1000.0), ("-7", -7), ("+7", 7),
        (".inf", ".inf"), (".nan", ".nan"), ('"12"', "12"), ("'true'", "true"), ("!!str 12", "12"),
    ],
)  # fmt: skip
def test_plain_scalars_follow_the_core_schema(plain, value):
    data = data_of(f"a: {plain}")["a"]
    assert data == value
    assert type(data) is type(value)


@pytest.mark.parametrize("plain", ["1234567890123456789", "-99999999999999999999999", "1e999"])
def test_a_number_that_would_lose_digits_is_refused(plain):
    outcome = read_document(f"a: {plain}")
    assert isinstance(outcome, list)
    assert [problem.code for problem in outcome] == ["yaml_number"]


def test_a_key_is_always_text():
    assert data_of("1: a\ntrue: b\nnull: c\n") == {"1": "a", "true": "b", "null": "c"}


def test_a_hundred_aliases_are_read():
    assert len(data_of("x: &x y\nl: [" + ", ".join(["*x"] * 100) + "]")["l"]) == 100


def test_many_problems_are_cut_off():
    found = problems_of("\n".join(["a: 1"] * 5000))
    assert len(found) == 101
    assert found[-1].code == "too_many_problems"


def test_a_message_never_carries_a_value_of_unbounded_length():
    problems = problems_of(HEAD + f"nodes: [{{key: a, changes: {'x' * 50_000}, command: {{run: make}}}}]\n")
    assert all(len(problem.message) < 300 for problem in problems)


def test_a_pointer_escapes_what_json_pointer_wants_escaped():
    (problem,) = problems_of(HEAD + '"a/b~c": 1\nnodes: [{key: a, command: {run: make}}]\n')
    assert problem.pointer == "/a~1b~0c"
