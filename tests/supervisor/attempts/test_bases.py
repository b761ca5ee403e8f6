from pathlib import Path

import pytest

from sandbox_supervisor import git
from sandbox_supervisor.attempts.bases import Part, combine, resolve, tree_of, unresolved


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git.run(None, "init", "-q", "--bare", str(tmp_path / "repo"))
    return tmp_path / "repo"


def commit(repo: Path, files: dict[str, str], *parents: str, at: int = 1_700_000_000) -> str:
    entries = b""
    for path, text in files.items():
        blob = git.run(repo, "hash-object", "-w", "--stdin", input=text.encode()).text
        entries += f"100644 {blob}\t{path}\0".encode()
    index = {"GIT_INDEX_FILE": str(repo / "test-index")}
    (repo / "test-index").unlink(missing_ok=True)
    git.run(repo, "update-index", "-z", "--index-info", input=entries, env=index)
    tree = git.run(repo, "write-tree", env=index).text
    named = [word for parent in parents for word in ("-p", parent)]
    return git.run(repo, "commit-tree", tree, *named, "-m", "test", env=git.dated(at)).text


def read(repo: Path, commit_id: str, path: str) -> str:
    return git.run(repo, "cat-file", "blob", f"{commit_id}:{path}").text


def test_no_needs_start_from_the_baseline(repo):
    base = commit(repo, {"a": "1"})
    assert combine(repo, base, []).commit == base


def test_a_single_result_is_passed_on_as_it_is(repo):
    base = commit(repo, {"a": "1"})
    work = commit(repo, {"a": "2"}, base)
    assert combine(repo, base, [Part(node="n", commit=work)]).commit == work


def test_a_result_that_another_one_contains_makes_no_merge_commit(repo):
    base = commit(repo, {"a": "1"})
    first = commit(repo, {"a": "2"}, base)
    second = commit(repo, {"a": "3"}, first)
    parts = [Part(node="second", commit=second), Part(node="first", commit=first), Part(node="passed", commit=base)]
    assert combine(repo, base, parts).commit == second


def test_parallel_results_merge_to_the_same_commit_every_time(repo):
    base = commit(repo, {"a": "1", "b": "1"})
    parts = [
        Part(node="one", commit=commit(repo, {"a": "2", "b": "1"}, base)),
        Part(node="two", commit=commit(repo, {"a": "1", "b": "2"}, base, at=1_700_000_009)),
    ]
    combined = combine(repo, base, parts)
    assert combined == combine(repo, base, parts)
    assert not combined.conflicts
    assert (read(repo, combined.commit, "a"), read(repo, combined.commit, "b")) == ("2", "2")
    shown = git.run(repo, "show", "-s", "--format=%P %ct", combined.commit).text.split()
    assert shown == [parts[0].commit, parts[1].commit, "1700000009"]


def test_a_conflict_names_the_file_and_both_nodes_and_picks_no_side(repo):
    base = commit(repo, {"a b\n c": "1\n", "other": "x"})
    one = Part(node="one", commit=commit(repo, {"a b\n c": "one\n", "other": "x"}, base))
    two = Part(node="two", commit=commit(repo, {"a b\n c": "two\n", "other": "x"}, base))
    combined = combine(repo, base, [one, two])
    assert [(c.path, c.ours.node, c.theirs.node) for c in combined.conflicts] == [("a b\n c", "one", "two")]
    marked = read(repo, combined.commit, "a b\n c")
    assert all(piece in marked for piece in ("one", "two", "<<<<<<<"))
    assert unresolved(repo, combined.commit, ["a b\n c", "other"]) == ["a b\n c"]
    assert unresolved(repo, one.commit, ["a b\n c"]) == []


def test_the_attributes_of_a_repository_cannot_choose_a_side(repo):
    base = commit(repo, {".gitattributes": "* merge=ours\nf merge=union\n", "f": "1\n", "g": "1\n"})
    one = Part(
        node="one",
        commit=commit(repo, {".gitattributes": "* merge=ours\nf merge=union\n", "f": "one\n", "g": "one\n"}, base),
    )
    two = Part(
        node="two",
        commit=commit(repo, {".gitattributes": "* merge=ours\nf merge=union\n", "f": "two\n", "g": "two\n"}, base),
    )
    assert {c.path for c in combine(repo, base, [one, two]).conflicts} == {"f", "g"}


@pytest.mark.parametrize(("theirs", "expected"), [(False, "one"), (True, "two")])
def test_a_person_settles_a_conflict_with_whole_files_of_one_side(repo, theirs, expected):
    base = commit(repo, {"f": "1\n", "g": "1\n", "h": "1\n"})
    parts = [
        Part(node="one", commit=commit(repo, {"f": "one\n", "g": "of one\n", "h": "1\n"}, base)),
        Part(node="two", commit=commit(repo, {"f": "two\n", "g": "1\n", "h": "of two\n"}, base)),
    ]
    settled = resolve(repo, base, parts, theirs=theirs)
    assert [read(repo, settled, name) for name in "fgh"] == [expected, "of one", "of two"]
    assert tree_of(repo, settled) != tree_of(repo, base)


@pytest.mark.parametrize(("theirs", "there"), [(False, True), (True, False)])
def test_a_file_that_one_side_deleted_follows_the_chosen_side(repo, theirs, there):
    base = commit(repo, {"f": "1\n", "keep": "x"})
    parts = [
        Part(node="changed", commit=commit(repo, {"f": "changed\n", "keep": "x"}, base)),
        Part(node="deleted", commit=commit(repo, {"keep": "x"}, base)),
    ]
    settled = resolve(repo, base, parts, theirs=theirs)
    names = git.run(repo, "ls-tree", "--name-only", settled).text.split()
    assert ("f" in names) is there
