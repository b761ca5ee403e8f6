"""Each attempt gets a clone of its own, at exactly the commit that was recorded."""

import asyncio
import shutil
from pathlib import Path

import pytest

from sandbox_supervisor.git import GitFailed
from sandbox_supervisor.runner import trees
from sandbox_supervisor.runner.folders import Folder
from sandbox_supervisor.runner.link import RunnerRefused
from tests.supervisor.runner.stage import git, make_repo

Repo = tuple[Path, str]


def folder_of(repo: Path, attempt: str = "node.1.1") -> Folder:
    return Folder.of(repo.parent / "work", attempt)


def test_the_tree_stands_detached_at_the_base_commit(repo: Repo):
    folder = folder_of(repo[0])
    assert trees.prepare(folder, *repo) == repo[1]
    assert git("rev-parse", "HEAD", cwd=folder.tree) == repo[1]
    assert git("rev-parse", "--symbolic-full-name", "HEAD", cwd=folder.tree) == "HEAD"
    assert git("status", "--porcelain", cwd=folder.tree) == ""
    assert (folder.tree / "src/app.py").read_text() == "print('hi')\n"


def test_objects_are_shared_not_copied(repo: Repo):
    folder = folder_of(repo[0])
    trees.prepare(folder, *repo)
    assert git("count-objects", cwd=folder.tree).startswith("0 objects")


def test_preparing_again_leaves_the_work_alone(repo: Repo):
    folder = folder_of(repo[0])
    trees.prepare(folder, *repo)
    (folder.tree / "work.txt").write_text("precious")
    assert trees.prepare(folder, *repo) == repo[1]
    assert (folder.tree / "work.txt").read_text() == "precious"


def test_preparing_again_at_another_commit_is_refused(repo: Repo):
    folder = folder_of(repo[0])
    trees.prepare(folder, *repo)
    other = git("commit-tree", "-m", "Other", "-p", repo[1], f"{repo[1]}^{{tree}}", cwd=repo[0])
    with pytest.raises(RunnerRefused) as refused:
        trees.prepare(folder, repo[0], other)
    assert refused.value.code == "wrong_base"


@pytest.mark.parametrize("commit", ["HEAD", "main", "abc123", "", "--help", "0" * 40, "A" * 40, "f" * 39])
def test_only_a_full_commit_id_is_a_base(repo: Repo, commit: str):
    with pytest.raises(RunnerRefused) as refused:
        trees.prepare(folder_of(repo[0]), repo[0], commit)
    assert refused.value.code == "bad_commit"


def test_a_commit_that_is_not_there_is_refused(repo: Repo):
    with pytest.raises(RunnerRefused) as refused:
        trees.prepare(folder_of(repo[0]), repo[0], "1" * 40)
    assert refused.value.code == "unknown_commit"
    assert not folder_of(repo[0]).path.exists()


def test_a_tree_object_is_no_base(repo: Repo):
    tree = git("rev-parse", f"{repo[1]}^{{tree}}", cwd=repo[0])
    with pytest.raises(RunnerRefused) as refused:
        trees.prepare(folder_of(repo[0]), repo[0], tree)
    assert refused.value.code == "unknown_commit"


@pytest.mark.parametrize(
    "attempt",
    ["../x.1.1", "a/b.1.1", ".1.1", "a.1", "a.0.1", "a.1.01x", "a.1.1/..", "-x.1.1", "a.1.1\n", "a" * 200 + ".1.1"],
)
def test_a_name_that_is_no_attempt_id_never_becomes_a_path(tmp_path: Path, attempt: str):
    with pytest.raises(RunnerRefused) as refused:
        Folder.of(tmp_path, attempt)
    assert refused.value.code == "bad_attempt"


def test_what_an_interrupted_preparation_left_is_made_anew(repo: Repo):
    folder = folder_of(repo[0])
    trees.prepare(folder, *repo)
    half = folder.path.with_name(f".{folder.path.name}.new")
    folder.path.rename(half)
    shutil.rmtree(half / "tree" / ".git")
    assert trees.prepare(folder, *repo) == repo[1]
    assert git("status", "--porcelain", cwd=folder.tree) == ""


async def test_sixteen_attempts_prepare_at_once(repo: Repo):
    folders = [folder_of(repo[0], f"node.1.{number}") for number in range(1, 17)]
    heads = await asyncio.gather(*(asyncio.to_thread(trees.prepare, folder, *repo) for folder in folders))
    assert set(heads) == {repo[1]}
    assert git("for-each-ref", "--format=%(refname)", cwd=repo[0]) == "refs/heads/main"


def test_configuration_of_one_tree_does_not_reach_another_or_the_repository(repo: Repo):
    one, other = folder_of(repo[0], "one.1.1"), folder_of(repo[0], "other.1.1")
    trees.prepare(one, *repo)
    trees.prepare(other, *repo)
    git("config", "alias.hi", "!echo hi", cwd=one.tree)
    git("stash", "list", cwd=one.tree)
    assert "alias.hi" not in git("config", "--list", cwd=other.tree)
    assert "alias.hi" not in git("config", "--list", cwd=repo[0])


def test_a_repository_with_sha256_ids_works(tmp_path: Path):
    base = make_repo(tmp_path, {"a": "b"}, kind="sha256")
    assert len(base) == 64
    assert trees.prepare(folder_of(tmp_path / "repo"), tmp_path / "repo", base) == base


def test_a_shallow_repository_works(tmp_path: Path):
    make_repo(tmp_path / "deep", {"a": "b"})
    source = tmp_path / "deep/source"
    (source / "a").write_text("c")
    git("commit", "-qam", "Second", cwd=source)
    git("clone", "-q", "--bare", "--depth=1", f"file://{source}", str(tmp_path / "repo"), cwd=tmp_path)
    base = git("rev-parse", "HEAD", cwd=source)
    folder = folder_of(tmp_path / "repo")
    assert trees.prepare(folder, tmp_path / "repo", base) == base
    assert git("log", "--format=%s", cwd=folder.tree) == "Second"


def test_names_with_odd_characters_and_links_are_checked_out_as_they_are(tmp_path: Path):
    source = tmp_path / "source"
    make_repo(tmp_path, {"ünï code/ tab\there": "x", "Case": "1", "case": "2", "-dash": "3"})
    (source / "link").symlink_to("/etc/passwd")
    git("add", "-A", cwd=source)
    git("commit", "-qm", "Link", cwd=source)
    git("push", "-q", str(tmp_path / "repo"), "main", cwd=source)
    base = git("rev-parse", "HEAD", cwd=source)
    folder = folder_of(tmp_path / "repo")
    trees.prepare(folder, tmp_path / "repo", base)
    assert (folder.tree / "link").is_symlink()
    assert (folder.tree / "Case").read_text() + (folder.tree / "case").read_text() == "12"
    assert (folder.tree / "ünï code/ tab\there").read_text() == "x"


def test_a_submodule_stays_an_empty_folder(tmp_path: Path):
    make_repo(tmp_path, {"a": "b"})
    source = tmp_path / "source"
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub", cwd=source)
    git("commit", "-qm", "Submodule", cwd=source)
    git("push", "-q", str(tmp_path / "repo"), "main", cwd=source)
    folder = folder_of(tmp_path / "repo")
    trees.prepare(folder, tmp_path / "repo", git("rev-parse", "HEAD", cwd=source))
    assert list((folder.tree / "sub").iterdir()) == []


def test_large_file_pointers_stay_pointers(tmp_path: Path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12\n"
    base = make_repo(tmp_path, {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "big.bin": pointer})
    folder = folder_of(tmp_path / "repo")
    trees.prepare(folder, tmp_path / "repo", base)
    assert (folder.tree / "big.bin").read_text() == pointer


def test_a_missing_repository_is_an_error_that_leaves_nothing_behind(tmp_path: Path):
    folder = Folder.of(tmp_path / "work", "node.1.1")
    with pytest.raises((GitFailed, RunnerRefused)):
        trees.prepare(folder, tmp_path / "nowhere", "1" * 40)
    assert not folder.path.exists()
