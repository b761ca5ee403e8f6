from pathlib import Path

import pytest

from sandbox_supervisor import git
from sandbox_supervisor.attempts.results import Refused, ref_of, take
from sandbox_supervisor.graph.rows import AttemptId
from sandbox_supervisor.runner.link import CommittedTree

ATTEMPT = AttemptId(node="implement", generation=2, n=1)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git.run(None, "init", "-q", "--bare", str(tmp_path / "repo"))
    return tmp_path / "repo"


def commit(repo: Path, text: str, *parents: str, path: str = "file") -> str:
    blob = git.run(repo, "hash-object", "-w", "--stdin", input=text.encode()).text
    tree = git.run(repo, "mktree", input=f"100644 blob {blob}\t{path}\n".encode()).text
    named = [word for parent in parents for word in ("-p", parent)]
    return git.run(repo, "commit-tree", tree, *named, "-m", "x", env=git.dated(1_700_000_000)).text


@pytest.fixture
def base(repo: Path) -> str:
    base = commit(repo, "base")
    git.run(repo, "update-ref", "refs/caisson/baseline", base)
    return base


def other_repository(tmp_path: Path, repo: Path) -> Path:
    git.run(None, "clone", "-q", "--bare", str(repo), str(tmp_path / "other"), safe=[repo])
    return tmp_path / "other"


def pack(repo: Path, commit_id: str, *without: str) -> bytes:
    wanted = "\n".join([commit_id, *(f"^{known}" for known in without)]) + "\n"
    return git.run(repo, "pack-objects", "--revs", "--stdout", "--thin", "-q", input=wanted.encode()).stdout


def committed(commit_id: str, data: bytes = b"") -> CommittedTree:
    return CommittedTree(commit=commit_id, tree="", changed=True, pack=data)


def test_a_result_is_stored_under_the_ref_of_its_attempt(tmp_path, repo, base):
    other = other_repository(tmp_path, repo)
    work = commit(other, "work", base)
    tree = take(repo, ATTEMPT, committed(work, pack(other, work, base)), base=base)
    assert git.run(repo, "rev-parse", "refs/attempts/implement/2/1").text == work
    assert git.run(repo, "cat-file", "blob", f"{tree}:file").text == "work"
    assert take(repo, ATTEMPT, committed(work), base=base) == tree


def test_an_unchanged_tree_keeps_its_base(repo, base):
    take(repo, ATTEMPT, committed(base), base=base, wip=True)
    assert git.run(repo, "rev-parse", ref_of(ATTEMPT, wip=True)).text == base


def test_a_commit_beside_the_base_is_refused(tmp_path, repo, base):
    other = other_repository(tmp_path, repo)
    stranger = commit(other, "stranger")
    with pytest.raises(Refused) as refused:
        take(repo, ATTEMPT, committed(stranger, pack(other, stranger)), base=base)
    assert refused.value.code == "not_a_descendant"
    assert git.run(repo, "for-each-ref", "refs/attempts").text == ""


def test_a_pack_that_lacks_objects_is_refused(tmp_path, repo, base):
    other = other_repository(tmp_path, repo)
    middle = commit(other, "middle", base)
    top = commit(other, "top", middle)
    with pytest.raises(Refused):
        take(repo, ATTEMPT, committed(top, pack(other, top, middle)), base=base)
    assert git.run(repo, "for-each-ref", "refs/attempts").text == ""


def test_broken_objects_are_refused(tmp_path, repo, base):
    other = other_repository(tmp_path, repo)
    blob = git.run(other, "hash-object", "-w", "--stdin", input=b"x").text
    raw = b"100644 .git\0" + bytes.fromhex(blob)
    tree = git.run(other, "hash-object", "-w", "-t", "tree", "--literally", "--stdin", input=raw).text
    work = git.run(other, "commit-tree", tree, "-p", base, "-m", "x", env=git.dated(1_700_000_000)).text
    with pytest.raises(Refused) as refused:
        take(repo, ATTEMPT, committed(work, pack(other, work, base)), base=base)
    assert refused.value.code == "objects_refused"


@pytest.mark.parametrize("name", ["HEAD", "--help", "0" * 40, "abc", ""])
def test_anything_but_a_full_commit_id_is_refused(repo, base, name):
    with pytest.raises(Refused) as refused:
        take(repo, ATTEMPT, committed(name), base=base)
    assert refused.value.code == "commit_malformed"


def test_garbage_instead_of_a_pack_is_refused(repo, base):
    with pytest.raises(Refused):
        take(repo, ATTEMPT, committed("1" * 40, b"PACKnonsense"), base=base)
