"""An agent may write what it likes into its tree's configuration: nothing of it runs in our processes."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_supervisor.runner import snapshots, theirs, trees
from sandbox_supervisor.runner.folders import Folder
from tests.supervisor.runner.stage import git, make_repo


class Trap:
    """A program that leaves a sentinel when anybody runs it."""

    def __init__(self, place: Path) -> None:
        self.sentinel = place / "sprung"
        self.program = place / "trap.sh"
        self.program.write_text(f"#!/bin/sh\ntouch '{self.sentinel}'\ncat\nexit 0\n")
        self.program.chmod(0o755)

    @property
    def sprung(self) -> bool:
        return self.sentinel.exists()


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


def hooks(tree: Path, trap: Trap) -> None:
    names = (
        "post-checkout",
        "pre-commit",
        "post-commit",
        "post-index-change",
        "reference-transaction",
        "prepare-commit-msg",
    )
    (tree / ".git/hooks").mkdir(exist_ok=True)
    for name in names:
        shutil.copy(trap.program, tree / ".git/hooks" / name)


def hooks_path(tree: Path, trap: Trap) -> None:
    hooks(tree, trap)
    git("config", "core.hooksPath", str(tree / ".git/hooks"), cwd=tree)


def fsmonitor(tree: Path, trap: Trap) -> None:
    git("config", "core.fsmonitor", str(trap.program), cwd=tree)


def filters(tree: Path, trap: Trap) -> None:
    for name in ("clean", "smudge", "process"):
        git("config", f"filter.evil.{name}", str(trap.program), cwd=tree)
    (tree / ".gitattributes").write_text("* filter=evil\n")


def diff_programs(tree: Path, trap: Trap) -> None:
    for name in ("diff.external", "diff.evil.command", "diff.evil.textconv", "core.pager", "pager.diff"):
        git("config", name, str(trap.program), cwd=tree)
    (tree / ".gitattributes").write_text("* diff=evil\n")


def signing(tree: Path, trap: Trap) -> None:
    git("config", "commit.gpgSign", "true", cwd=tree)
    git("config", "gpg.program", str(trap.program), cwd=tree)


def alternate_refs(tree: Path, trap: Trap) -> None:
    git("config", "core.alternateRefsCommand", str(trap.program), cwd=tree)


def included_config(tree: Path, trap: Trap) -> None:
    (tree / "evil.config").write_text(f"[core]\n\tfsmonitor = {trap.program}\n\thooksPath = {tree}\n")
    git("config", "include.path", str(tree / "evil.config"), cwd=tree)
    shutil.copy(trap.program, tree / "post-index-change")


def nested_repository(tree: Path, trap: Trap) -> None:
    nested = tree / "nested"
    nested.mkdir()
    git("init", "-q", cwd=nested)
    (nested / "f").write_text("x")
    git("add", "f", cwd=nested)
    git("commit", "-qm", "x", cwd=nested)
    fsmonitor(nested, trap)
    hooks(nested, trap)


TRAPS: list[Callable[[Path, Trap], None]] = [
    hooks, hooks_path, fsmonitor, filters, diff_programs, signing, alternate_refs, included_config, nested_repository,
]  # fmt: skip


@pytest.fixture
def prepared(tmp_path: Path) -> tuple[Folder, Path, str]:
    base = make_repo(tmp_path, {"a.txt": "one\n"})
    folder = Folder.of(tmp_path / "work", "node.1.1")
    trees.prepare(folder, tmp_path / "repo", base)
    return folder, tmp_path / "repo", base


@pytest.mark.parametrize("lay", TRAPS, ids=[lay.__name__ for lay in TRAPS])
def test_nothing_of_an_attempts_git_runs_when_its_work_is_taken(prepared, trap: Trap, lay):
    folder, repo, base = prepared
    (folder.tree / "a.txt").write_text("changed\n")
    lay(folder.tree, trap)
    trap.sentinel.unlink(missing_ok=True)
    snapshots.commit(folder, repo, "Kept", base)
    snapshots.diff(folder, repo, base)
    snapshots.changed_since_birth(folder, repo)
    trees.prepare(folder, repo, base)
    assert not trap.sprung


def test_the_traps_do_spring_for_a_git_that_obeys_the_tree(prepared, trap: Trap):
    folder, _, _ = prepared
    fsmonitor(folder.tree, trap)
    git("status", cwd=folder.tree)
    assert trap.sprung


def test_our_own_git_directory_does_not_obey_an_attempt_that_found_it(prepared, trap: Trap):
    folder, repo, base = prepared
    for name in ("clean", "process"):
        git("config", f"filter.evil.{name}", str(trap.program), cwd=folder.git)
    (folder.git / "info").mkdir(exist_ok=True)
    (folder.git / "info/attributes").write_text("* filter=evil\n")
    (folder.git / "index.lock").touch()
    (folder.tree / "a.txt").write_text("changed\n")
    assert snapshots.commit(folder, repo, "Kept", base).changed
    assert snapshots.diff(folder, repo, base) > 0
    assert snapshots.changed_since_birth(folder, repo)
    assert not trap.sprung


def test_our_own_git_directory_takes_no_settings_from_elsewhere(prepared, tmp_path: Path, trap: Trap):
    folder, repo, base = prepared
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder.git, elsewhere)
    for name in ("clean", "process"):
        git("config", f"filter.evil.{name}", str(trap.program), cwd=elsewhere)
    (folder.git / "commondir").write_text(f"{elsewhere}\n")
    (folder.tree / ".gitattributes").write_text("* filter=evil\n")
    (folder.tree / "a.txt").write_text("changed\n")
    assert snapshots.commit(folder, repo, "Kept", base).changed
    assert not trap.sprung


def test_a_link_in_the_place_of_one_of_our_own_files_is_not_written_through(prepared, tmp_path: Path):
    folder, repo, base = prepared
    (tmp_path / "precious").write_text("keep")
    for name in ("index", "diff", "config"):
        (folder.git / name).unlink(missing_ok=True)
        (folder.git / name).symlink_to(tmp_path / "precious")
    (folder.tree / "a.txt").write_text("changed\n")
    assert snapshots.commit(folder, repo, "Kept", base).changed
    assert snapshots.diff(folder, repo, base) > 0
    assert (tmp_path / "precious").read_text() == "keep"


def test_a_submodule_with_a_hostile_config_is_not_looked_into(tmp_path: Path, trap: Trap):
    make_repo(tmp_path / "inner", {"f": "x"})
    make_repo(tmp_path, {"a": "b"})
    source = tmp_path / "source"
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "inner/source"), "sub", cwd=source)
    git("commit", "-qm", "Submodule", cwd=source)
    git("push", "-q", str(tmp_path / "repo"), "main", cwd=source)
    base = git("rev-parse", "HEAD", cwd=source)
    folder = Folder.of(tmp_path / "work", "node.1.1")
    trees.prepare(folder, tmp_path / "repo", base)
    git("clone", "-q", str(tmp_path / "inner/source"), "sub", cwd=folder.tree)
    filters(folder.tree / "sub", trap)
    fsmonitor(folder.tree / "sub", trap)
    (folder.tree / "sub/f").write_text("yy")
    (folder.tree / "a").write_text("c")
    trap.sentinel.unlink(missing_ok=True)
    snapshots.commit(folder, tmp_path / "repo", "Kept", base)
    snapshots.diff(folder, tmp_path / "repo", base)
    assert not trap.sprung


def test_filters_named_by_the_repository_do_not_run_at_checkout(tmp_path: Path, trap: Trap, monkeypatch):
    evil = tmp_path / "global"
    evil.write_text(
        f'[filter "evil"]\n\tsmudge = {trap.program}\n\tclean = {trap.program}\n[core]\n\thooksPath = {tmp_path}\n'
    )
    shutil.copy(trap.program, tmp_path / "post-checkout")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(evil))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path))
    base = make_repo(tmp_path, {".gitattributes": "* filter=evil\n", "a": "x\n"})
    folder = Folder.of(tmp_path / "work", "node.1.1")
    trees.prepare(folder, tmp_path / "repo", base)
    assert not trap.sprung
    assert (folder.tree / "a").read_text() == "x\n"


def test_a_git_folder_replaced_by_a_link_is_not_followed(prepared, tmp_path: Path):
    folder, repo, base = prepared
    elsewhere = tmp_path / "elsewhere"
    (folder.tree / ".git").rename(elsewhere)
    (folder.tree / ".git").symlink_to(elsewhere)
    (folder.tree / "a.txt").write_text("changed\n")
    made = snapshots.commit(folder, repo, "Kept", base)
    assert theirs.head_of(folder.tree) is None
    assert git("rev-parse", f"{made.commit}^", cwd=folder.git) == base


def test_a_git_folder_that_is_gone_loses_no_files(prepared):
    folder, repo, base = prepared
    shutil.rmtree(folder.tree / ".git")
    (folder.tree / "a.txt").write_text("changed\n")
    assert snapshots.commit(folder, repo, "Kept", base).changed


@pytest.mark.parametrize("what", ["fifo", "link", "alternates", "alternates far behind"])
def test_an_object_folder_with_surprises_is_not_read(prepared, tmp_path: Path, what: str):
    folder, repo, base = prepared
    (folder.tree / "a.txt").write_text("agent\n")
    git("commit", "-qam", "Agent's own", cwd=folder.tree)
    objects = folder.tree / ".git/objects"
    if what == "fifo":
        os.mkfifo(objects / "pack/pack-x.idx")
    elif what == "link":
        (objects / "zz").symlink_to(tmp_path)
    else:
        gap = "\n" * (10_000 if what == "alternates far behind" else 1)
        (objects / "info/alternates").write_text(f"{repo}/objects{gap}{tmp_path}\n")
    assert theirs.objects_of(folder.tree, repo) is None
    made = snapshots.commit(folder, repo, "Kept", base)
    assert git("show", "-s", "--format=%s %P", made.commit, cwd=folder.git) == f"Kept {base}"


@pytest.mark.parametrize(
    "head",
    ["ref: refs/../../../../etc/passwd", "ref: /etc/passwd", "ref: refs/heads/" + "x" * 5000, "nonsense", "\0" * 50],
)
def test_a_head_that_makes_no_sense_stands_for_nothing(prepared, head: str):
    folder, repo, base = prepared
    (folder.tree / ".git/HEAD").write_text(head)
    assert theirs.head_of(folder.tree) is None
    assert snapshots.commit(folder, repo, "Kept", base).commit == base


def test_a_ref_that_is_a_link_is_not_followed(prepared, tmp_path: Path):
    folder, _, base = prepared
    (tmp_path / "ref").write_text(base)
    (folder.tree / ".git/HEAD").write_text("ref: refs/heads/evil\n")
    (folder.tree / ".git/refs/heads").mkdir(parents=True, exist_ok=True)
    (folder.tree / ".git/refs/heads/evil").symlink_to(tmp_path / "ref")
    assert theirs.head_of(folder.tree) is None


def test_refs_that_lead_in_a_circle_end(prepared):
    folder, _, _ = prepared
    (folder.tree / ".git/HEAD").write_text("ref: refs/heads/a\n")
    (folder.tree / ".git/refs/heads").mkdir(parents=True, exist_ok=True)
    (folder.tree / ".git/refs/heads/a").write_text("ref: refs/heads/a\n")
    assert theirs.head_of(folder.tree) is None
