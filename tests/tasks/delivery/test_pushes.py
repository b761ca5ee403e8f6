"""A push moves exactly one branch, under a lease, and is believed only after the remote has shown it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks_app import git as our_git
from tasks_app.remotes import Remote, RemoteProblem
from tasks_app.services.delivery import bundle, mirror, push
from tests.git_remotes import Project, git, reach

BRANCH = "caisson/work"


class Prepared:
    """A commit that waits in quarantine to be pushed."""

    def __init__(self, project: Project, path: Path, objects: our_git.Objects, commit: str) -> None:
        self.project, self.mirror, self.objects = project, path, objects
        self.push = push.Push(branch=BRANCH, commit=commit, expected="")

    def go(self, remote: Remote | None = None, **changes: Any) -> None:
        remote = remote or reach(str(self.project.remote))
        push.carry_out(replace(self.push, **changes), remote, mirror=self.mirror, objects=self.objects)


@pytest.fixture
def prepared(project: Project) -> Iterator[Prepared]:
    commit = project.commit({"a.txt": "a"})
    path = mirror.prepare(reach(str(project.remote)), commit=project.base, ref="refs/heads/main")
    with bundle.unpacked(project.bundle(commit, branch=BRANCH), path) as objects:
        yield Prepared(project, path, objects, commit)


def hook(folder: Path, name: str, script: str) -> None:
    (folder / "hooks").mkdir(exist_ok=True)
    path = folder / "hooks" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_push_touches_exactly_the_task_branch(prepared):
    before = prepared.project.refs()
    prepared.go()
    assert prepared.project.refs() == before | {f"refs/heads/{BRANCH}": prepared.push.commit}


def test_repeating_a_push_changes_nothing(prepared):
    prepared.go()
    before = prepared.project.refs()
    prepared.go()
    assert prepared.project.refs() == before


def test_a_branch_that_somebody_else_made_is_a_conflict_and_stays(prepared):
    other = prepared.project.commit({"b.txt": "b"})
    prepared.project.move(BRANCH, other)
    with pytest.raises(push.PushConflict) as conflict:
        prepared.go()
    assert conflict.value.facts == {"branch": BRANCH, "expected": "", "found": other}
    assert prepared.project.refs()[f"refs/heads/{BRANCH}"] == other


def test_a_branch_that_vanished_is_a_conflict(prepared):
    with pytest.raises(push.PushConflict) as conflict:
        prepared.go(expected=prepared.project.base)
    assert conflict.value.facts["found"] == ""


def test_the_tasks_own_earlier_delivery_is_replaced(prepared):
    earlier = prepared.project.commit({"earlier.txt": "e"})
    prepared.project.move(BRANCH, earlier)
    prepared.go(expected=earlier)
    assert prepared.project.refs()[f"refs/heads/{BRANCH}"] == prepared.push.commit


def test_a_branch_that_moves_while_the_push_is_under_way_is_a_conflict(prepared, http_remote):
    other = prepared.project.commit({"b.txt": "b"})
    http_remote.faults.before_push = lambda: prepared.project.move(BRANCH, other)
    with pytest.raises(push.PushConflict):
        prepared.go(reach(f"{http_remote.url}/remote.git"))
    assert prepared.project.refs()[f"refs/heads/{BRANCH}"] == other


def test_a_push_whose_answer_was_lost_is_done_when_the_remote_shows_it(prepared, http_remote):
    http_remote.faults.lose_push_answers = 1
    prepared.go(reach(f"{http_remote.url}/remote.git"))
    assert http_remote.faults.lost.is_set()
    assert prepared.project.refs()[f"refs/heads/{BRANCH}"] == prepared.push.commit


def test_a_push_over_http_arrives(prepared, http_remote):
    prepared.go(reach(f"{http_remote.url}/remote.git"))
    assert prepared.project.refs()[f"refs/heads/{BRANCH}"] == prepared.push.commit


def test_a_push_that_needs_a_password_is_refused_without_a_prompt(prepared, http_remote):
    http_remote.faults.ask_password = True
    with pytest.raises(RemoteProblem) as problem:
        prepared.go(reach(f"{http_remote.url}/remote.git"))
    assert (problem.value.code, problem.value.transient) == ("remote_auth", False)


def test_a_remote_with_trouble_of_its_own_may_be_tried_again(prepared, http_remote):
    http_remote.faults.status = 503
    with pytest.raises(RemoteProblem) as problem:
        prepared.go(reach(f"{http_remote.url}/remote.git"))
    assert problem.value.transient
    http_remote.faults.status = 0
    prepared.go(reach(f"{http_remote.url}/remote.git"))


@pytest.mark.parametrize("name", ["pre-receive", "update", "post-receive", "post-update", "reference-transaction"])
def test_no_hook_of_a_local_remote_runs(prepared, tmp_path, name):
    sentinel = tmp_path / "ran"
    hook(prepared.project.remote, name, f"touch {sentinel}")
    prepared.go()
    assert not sentinel.exists()


def test_no_program_that_a_local_remote_configures_runs(prepared, tmp_path):
    sentinel = tmp_path / "ran"
    remote = prepared.project.remote
    for key in (
        "core.fsmonitor",
        "core.alternateRefsCommand",
        "uploadpack.packObjectsHook",
        "core.sshCommand",
        "core.pager",
    ):
        git(remote, "config", key, f"touch {sentinel}")
    hook(tmp_path, "pre-receive", f"touch {sentinel}")
    git(remote, "config", "core.hooksPath", str(tmp_path / "hooks"))
    (remote / "objects" / "info" / "alternates").write_text(f"{prepared.project.clone}/.git/objects\n")
    prepared.go()
    assert not sentinel.exists()


def test_no_hook_or_program_of_the_mirror_runs(prepared, tmp_path):
    sentinel = tmp_path / "ran"
    hook(prepared.mirror, "pre-push", f"touch {sentinel}")
    for key in ("core.fsmonitor", "core.sshCommand", "core.alternateRefsCommand"):
        git(prepared.mirror, "config", key, f"touch {sentinel}")
    prepared.go()
    assert not sentinel.exists()


@pytest.fixture
def worktree_remote(prepared) -> Path:
    """A remote that is not bare and has the task branch checked out."""
    folder: Path = prepared.project.remote.parent / "worktree"
    git(folder.parent, "clone", "--quiet", str(prepared.project.remote), str(folder))
    git(folder, "checkout", "--quiet", "-b", BRANCH)
    return folder


def test_a_branch_that_is_checked_out_at_the_remote_is_refused_with_the_way_out(prepared, worktree_remote):
    with pytest.raises(push.PushRefused) as refused:
        prepared.go(reach(str(worktree_remote)), expected=prepared.project.base)
    assert refused.value.code == "branch_checked_out"
    assert "Check out another branch" in refused.value.message


def test_a_remote_that_updates_its_checked_out_files_runs_no_filter(prepared, worktree_remote, tmp_path):
    sentinel = tmp_path / "ran"
    git(worktree_remote, "config", "receive.denyCurrentBranch", "updateInstead")
    git(worktree_remote, "config", "filter.x.smudge", f"touch {sentinel}")
    git(worktree_remote, "config", "core.fsmonitor", f"touch {sentinel}")
    (worktree_remote / ".git" / "info" / "attributes").write_text("* filter=x\n")
    hook(worktree_remote / ".git", "push-to-checkout", f"touch {sentinel}")
    with pytest.raises(push.PushRefused):
        prepared.go(reach(str(worktree_remote)), expected=prepared.project.base)
    assert not sentinel.exists()


def test_a_remote_that_is_not_bare_takes_another_branch(prepared, worktree_remote):
    git(worktree_remote, "checkout", "--quiet", "main")
    prepared.go(reach(str(worktree_remote)), expected=prepared.project.base)
    assert git(worktree_remote, "rev-parse", BRANCH) == prepared.push.commit


def test_a_branch_below_an_existing_branch_is_refused_by_name(prepared):
    prepared.project.move("caisson", prepared.project.base)
    with pytest.raises(push.PushRefused) as refused:
        prepared.go()
    assert refused.value.code == "branch_in_the_way"


def test_a_rule_of_the_remote_that_declines_is_final(prepared, http_remote):
    hook(prepared.project.remote, "pre-receive", "echo 'no thank you' >&2; exit 1")
    with pytest.raises(push.PushRefused) as refused:
        prepared.go(reach(f"{http_remote.url}/remote.git"))
    assert refused.value.code == "push_declined"


@pytest.mark.parametrize(
    "said",
    ["unable to create temporary object directory", "insufficient permission for adding an object to repository"],
)
def test_a_place_that_may_not_be_written_is_told_apart_from_a_rule(said):
    answer = b"To /srv/shop\n!\tHEAD:refs/heads/x\t[remote rejected] (unpacker error)\nDone\n"
    refused = push._refusal(
        our_git.Completed(returncode=1, stdout=answer, stderr=f"error: remote unpack failed: {said}")
    )
    assert refused is not None
    assert refused.code == "remote_forbidden"
    assert "Make it writable" in refused.message


def test_a_remote_that_forbids_rewriting_refuses_an_unrelated_second_delivery(prepared):
    earlier = prepared.project.commit({"earlier.txt": "e"})
    prepared.project.move(BRANCH, earlier)
    git(prepared.project.remote, "config", "receive.denyNonFastForwards", "true")
    with pytest.raises(push.PushRefused):
        prepared.go(expected=earlier)
    assert prepared.project.refs()[f"refs/heads/{BRANCH}"] == earlier


@pytest.mark.parametrize("branch", ["-x", "refs/heads/main", "a:b", "+main", "main:refs/heads/other", ""])
def test_a_branch_name_outside_the_rules_is_refused_before_the_network(prepared, http_remote, branch):
    asked = len(http_remote.faults.requests)
    with pytest.raises(push.PushRefused):
        prepared.go(reach(f"{http_remote.url}/remote.git"), branch=branch)
    assert len(http_remote.faults.requests) == asked
