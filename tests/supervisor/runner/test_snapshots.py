"""What stands in a tree becomes exactly one commit, diff and pack."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from sandbox_supervisor.git import GitFailed
from sandbox_supervisor.runner import snapshots, trees
from sandbox_supervisor.runner.folders import Folder
from sandbox_supervisor.runner.link import RunnerRefused
from tests.supervisor.runner.stage import git, make_repo


class Work:
    """A prepared tree, and short words for what is done with it."""

    def __init__(self, place: Path, files: dict[str, str] | None = None, kind: str = "sha1") -> None:
        self.base = make_repo(
            place, files or {"a.txt": "one\n", "d/b.txt": "two\n", ".gitignore": "*.log\n"}, kind=kind
        )
        self.repo = place / "repo"
        self.folder = Folder.of(place / "work", "node.1.1")
        trees.prepare(self.folder, self.repo, self.base)
        self.tree = self.folder.tree

    def commit(self) -> snapshots.Made:
        return snapshots.commit(self.folder, self.repo, "Kept", self.base)

    def stored(self) -> str:
        """Commit, store the pack in the repository as the supervisor does, and give the commit."""
        made = self.commit()
        pack = snapshots.pack_bytes(self.folder, 0, made.pack_size)
        index = ["git", "index-pack", "--strict", "--fsck-objects", "--stdin"]
        if pack:
            subprocess.run(index, cwd=self.repo, input=pack, check=True, capture_output=True)
        return made.commit

    def files(self) -> dict[str, str]:
        """Give path → content of the stored commit."""
        commit = self.stored()
        names = git("ls-tree", "-r", "-z", "--name-only", commit, cwd=self.repo).split("\0")
        return {name: git("show", f"{commit}:{name}", cwd=self.repo) for name in names if name}

    def diff(self) -> str:
        size = snapshots.diff(self.folder, self.repo, self.base)
        return snapshots.diff_bytes(self.folder, 0, size).decode("utf-8", "replace")


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_an_untouched_tree_gives_the_base_and_no_pack(work: Work):
    made = work.commit()
    assert (made.commit, made.changed, made.pack_size) == (work.base, False, 0)
    assert not snapshots.changed_since_birth(work.folder, work.repo)


def test_changed_new_and_deleted_files_are_committed_and_ignored_ones_are_not(work: Work):
    (work.tree / "a.txt").write_text("changed\n")
    (work.tree / "new dir").mkdir()
    (work.tree / "new dir/n\newline").write_text("new\n")
    (work.tree / "d/b.txt").unlink()
    (work.tree / "noise.log").write_text("ignored")
    assert work.files() == {".gitignore": "*.log", "a.txt": "changed", "new dir/n\newline": "new"}
    assert snapshots.changed_since_birth(work.folder, work.repo)


def test_the_same_files_give_the_same_commit(work: Work):
    (work.tree / "a.txt").write_text("changed\n")
    assert work.commit().commit == work.commit().commit


def test_the_commit_is_ours_and_dated_like_its_parent(work: Work):
    (work.tree / "a.txt").write_text("changed\n")
    shown = git("show", "-s", "--format=%an|%ae|%ct|%at|%s|%P", work.stored(), cwd=work.repo)
    assert shown == f"Caisson|noreply@caisson.invalid|1700000000|1700000000|Kept|{work.base}"


def test_the_agents_own_commits_stay_below_what_is_left_uncommitted(work: Work):
    (work.tree / "a.txt").write_text("by the agent\n")
    git("commit", "-qam", "Agent's own", cwd=work.tree)
    own = git("rev-parse", "HEAD", cwd=work.tree)
    assert work.stored() == own
    (work.tree / "later").write_text("x")
    assert git("log", "--format=%s", f"{work.base}..{work.stored()}", cwd=work.repo).split("\n") == [
        "Kept",
        "Agent's own",
    ]


def test_a_branch_that_the_agent_made_is_followed(work: Work):
    git("checkout", "-q", "-b", "feature/x", cwd=work.tree)
    (work.tree / "a.txt").write_text("on a branch\n")
    git("commit", "-qam", "On a branch", cwd=work.tree)
    git("pack-refs", "--all", cwd=work.tree)
    git("gc", "-q", cwd=work.tree)
    assert git("log", "-1", "--format=%s", work.stored(), cwd=work.repo) == "On a branch"


def test_a_head_that_does_not_descend_from_the_base_is_passed_over(work: Work):
    git("checkout", "-q", "--orphan", "other", cwd=work.tree)
    git("commit", "-qm", "Unrelated", cwd=work.tree)
    (work.tree / "a.txt").write_text("changed\n")
    assert git("log", "--format=%s", work.stored(), cwd=work.repo).split("\n") == ["Kept", "Begin"]


def test_an_unborn_branch_is_passed_over(work: Work):
    git("checkout", "-q", "--orphan", "unborn", cwd=work.tree)
    assert work.commit().commit == work.base


def test_a_commit_reset_away_leaves_the_files_that_stand_there(work: Work):
    (work.tree / "a.txt").write_text("kept\n")
    git("commit", "-qam", "Reset away", cwd=work.tree)
    git("reset", "-q", "--soft", "HEAD^", cwd=work.tree)
    assert work.files()["a.txt"] == "kept"


def test_a_file_that_became_a_folder_and_a_folder_that_became_a_file(work: Work):
    (work.tree / "a.txt").unlink()
    (work.tree / "a.txt").mkdir()
    (work.tree / "a.txt/inside").write_text("x")
    (work.tree / "d/b.txt").unlink()
    (work.tree / "d").rmdir()
    (work.tree / "d").write_text("file")
    assert work.files() == {".gitignore": "*.log", "a.txt/inside": "x", "d": "file"}


def test_a_folder_that_became_a_link_is_kept_as_a_link_and_not_followed(work: Work, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/b.txt").write_text("secret")
    (work.tree / "d/b.txt").unlink()
    (work.tree / "d").rmdir()
    (work.tree / "d").symlink_to(tmp_path / "outside")
    commit = work.stored()
    assert git("ls-tree", commit, "d", cwd=work.repo).startswith("120000")
    assert git("ls-tree", "-r", "--name-only", commit, cwd=work.repo).split() == [".gitignore", "a.txt", "d"]


def test_a_link_to_a_file_outside_is_kept_as_a_link(work: Work):
    (work.tree / "passwd").symlink_to("/etc/passwd")
    assert work.files()["passwd"] == "/etc/passwd"


def test_modes_are_kept(work: Work):
    (work.tree / "a.txt").chmod(0o755)
    (work.tree / "d/b.txt").chmod(0o444)
    listed = git("ls-tree", "-r", work.stored(), cwd=work.repo)
    assert "100755 blob" in next(line for line in listed.splitlines() if line.endswith("a.txt"))
    assert "100644 blob" in next(line for line in listed.splitlines() if line.endswith("b.txt"))


def test_pipes_and_sockets_are_left_out(work: Work):
    os.mkfifo(work.tree / "pipe")
    (work.tree / "a.txt").unlink()
    os.mkfifo(work.tree / "a.txt")
    assert set(work.files()) == {".gitignore", "d/b.txt"}


def test_a_nested_repository_is_left_out(work: Work):
    nested = work.tree / "vendor"
    nested.mkdir()
    git("init", "-q", cwd=nested)
    (nested / "f").write_text("x")
    git("add", "f", cwd=nested)
    git("commit", "-qm", "Nested", cwd=nested)
    assert work.commit().commit == work.base


def test_a_submodule_stays_as_the_base_has_it(tmp_path: Path):
    make_repo(tmp_path, {"a": "b"})
    source = tmp_path / "source"
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub", cwd=source)
    git("commit", "-qm", "Submodule", cwd=source)
    git("push", "-q", str(tmp_path / "repo"), "main", cwd=source)
    base = git("rev-parse", "HEAD", cwd=source)
    folder = Folder.of(tmp_path / "work", "node.1.1")
    trees.prepare(folder, tmp_path / "repo", base)
    (folder.tree / "sub/file").write_text("x")
    (folder.tree / "a").write_text("c")
    made = snapshots.commit(folder, tmp_path / "repo", "Kept", base)
    assert git("ls-tree", made.commit, "sub", cwd=folder.git).startswith(f"160000 commit {'1' * 40}")


def test_names_that_are_not_utf8_are_kept(work: Work):
    (Path(os.fsdecode(os.fsencode(work.tree) + b"/\xff\xfe.txt"))).write_text("x")
    assert '"\\377\\376.txt"' in git("ls-tree", "-r", "--name-only", work.stored(), cwd=work.repo).split("\n")


def test_a_repository_with_sha256_ids_is_committed(tmp_path: Path):
    work = Work(tmp_path, kind="sha256")
    (work.tree / "a.txt").write_text("changed\n")
    assert len(work.stored()) == 64


def test_a_file_beyond_the_limit_is_refused_by_name(work: Work, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshots, "FILE_LIMIT", 10)
    (work.tree / "huge.bin").write_bytes(b"x" * 11)
    with pytest.raises(RunnerRefused, match=r"huge\.bin") as refused:
        work.commit()
    assert refused.value.code == "file_too_large"
    assert refused.value.facts == {"files": ["huge.bin"]}


def test_too_many_files_are_refused(work: Work, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshots, "COUNT_LIMIT", 3)
    (work.tree / "one more").write_text("x")
    with pytest.raises(RunnerRefused) as refused:
        work.commit()
    assert refused.value.code == "too_many_files"


def test_a_pack_beyond_the_limit_is_refused(work: Work, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshots, "PACK_LIMIT", 100)
    (work.tree / "big").write_bytes(os.urandom(1000))
    with pytest.raises(RunnerRefused) as refused:
        work.commit()
    assert refused.value.code == "pack_too_large"


def test_a_pack_far_beyond_the_limit_is_given_up_before_it_fills_the_disk(work: Work, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshots, "PACK_LIMIT", 100)
    (work.tree / "big").write_bytes(os.urandom(4 * 1024 * 1024))
    with pytest.raises(RunnerRefused) as refused:
        work.commit()
    assert refused.value.code == "pack_too_large"
    assert not [path for path in work.folder.git.rglob("*pack*") if path.is_file()]


def test_the_attempts_own_index_and_files_are_not_touched(work: Work):
    (work.tree / "staged").write_text("x")
    git("add", "staged", cwd=work.tree)
    (work.tree / "unstaged").write_text("y")
    before = (work.tree / ".git/index").read_bytes()
    work.commit()
    assert (work.tree / ".git/index").read_bytes() == before
    assert git("status", "--porcelain", cwd=work.tree) == "A  staged\n?? unstaged"


# --- diff ------------------------------------------------------------------------------------------------------------


def test_the_diff_shows_changed_new_and_deleted_files(work: Work):
    (work.tree / "a.txt").write_text("changed\n")
    (work.tree / "new").write_text("new\n")
    (work.tree / "d/b.txt").unlink()
    shown = work.diff()
    assert "-one\n+changed\n" in shown
    assert "new file mode 100644" in shown
    assert "deleted file mode 100644" in shown


def test_an_untouched_tree_has_an_empty_diff(work: Work):
    assert work.diff() == ""


def test_a_diff_that_is_too_long_is_cut_and_says_so(work: Work, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshots, "DIFF_LIMIT", 1000)
    (work.tree / "long").write_text("line\n" * 1000)
    shown = work.diff()
    assert len(shown) < 1100
    assert shown.endswith("ends here\n")


def test_a_diff_beyond_what_may_be_written_is_cut_too(work: Work):
    (work.tree / "long").write_text("a line of some length\n" * 1_000_000)
    shown = work.diff()
    assert len(shown) < snapshots.DIFF_LIMIT + 200
    assert shown.endswith("ends here\n")


def test_binary_changes_are_named_not_shown(work: Work):
    (work.tree / "a.txt").write_bytes(b"\0\1\2")
    assert "Binary files a/a.txt and b/a.txt differ" in work.diff()


def test_an_edit_of_the_same_length_in_the_second_of_the_checkout_is_kept(tmp_path):
    """Git compares size and whole seconds; only the index's own time tells it that it must look at the content."""
    for n in range(30):
        work = Work(tmp_path / str(n))
        before = (work.tree / "a.txt").stat()
        (work.tree / "a.txt").write_text("ONE\n")
        after = (work.tree / "a.txt").stat()
        if (int(after.st_ctime), after.st_size) == (int(before.st_ctime), before.st_size):
            break
    else:
        raise AssertionError("no second was long enough")
    while time.time() < int(after.st_ctime) + 1:
        time.sleep(0.02)
    assert git("status", "--porcelain", cwd=work.tree) == "M a.txt"
    assert work.files()["a.txt"] == "ONE"


def test_a_diff_that_takes_too_long_is_given_up_as_a_whole_and_the_commit_is_not(work: Work, tmp_path, monkeypatch):
    """The end of a living attempt waits for its diff; each single call of Git may be short enough."""
    slow = tmp_path / "slow" / "git"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\nsleep 0.3\nexec {shutil.which("git")} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(slow.parent), prepend=os.pathsep)
    monkeypatch.setattr(snapshots, "LIVE_TIME", 0.5)
    (work.tree / "a.txt").write_text("changed\n")
    with pytest.raises(GitFailed, match="took too long"):
        work.diff()
    assert work.commit().changed
