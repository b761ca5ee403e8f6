"""Each file of the corpus says in its first lines what the compiler must find in it: code, pointer, line."""

import re
from pathlib import Path

import pytest

from registry_app.flows.compiler import CompiledFlow, compile_flow

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.yaml"))
EXPECTED = re.compile(r"# expect: (\S+) (\S+) line (\d+)")


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_the_compiler_finds_exactly_what_is_wrong(file: Path):
    text = file.read_text(encoding="utf-8")
    wanted = sorted((code, pointer.rstrip("/"), int(line)) for code, pointer, line in EXPECTED.findall(text))
    outcome = compile_flow(text)
    if isinstance(outcome, CompiledFlow):
        assert not wanted
        assert text.startswith("# expect: nothing")
    else:
        assert sorted((one.code, one.pointer.rstrip("/"), one.line) for one in outcome) == wanted


@pytest.mark.parametrize(
    "file", [file for file in CORPUS if not file.stem.startswith("good")], ids=lambda file: file.stem
)
def test_every_problem_explains_itself_on_one_line(file: Path):
    outcome = compile_flow(file.read_text(encoding="utf-8"))
    assert not isinstance(outcome, CompiledFlow)
    for problem in outcome:
        assert problem.message[0].isupper() or problem.message[0] in "'`\"f-", problem
        assert problem.message.endswith(".")
        assert ".." not in problem.message
        assert "\n" not in problem.message + problem.hint
        assert len(problem.message) < 300
        assert problem.column >= 1


def test_the_corpus_is_not_empty():
    assert len(CORPUS) > 60
