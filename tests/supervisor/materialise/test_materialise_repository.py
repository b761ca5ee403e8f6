"""Bringing the repository in, and how it is told when that cannot be."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from sandbox_supervisor.materialise.failure import Failed
from sandbox_supervisor.materialise.repository import BASELINE, bring_in
from sandbox_supervisor.protocol import codec, folder
from tests.sandbox_folder import git, make_repository, task_specification, until
from tests.supervisor.materialise.wanted import ABSENT, baseline, refusal, wanted

# --- what works ------------------------------------------------------------------------------------------------------


def test_the_baseline_is_the_newest_commit(source, head, target):
    bring_in(target, wanted(source, head))
    assert baseline(target) == head
    assert git("--git-dir", str(target), "for-each-ref", "--format=%(refname)") == BASELINE


def test_the_baseline_may_be_an_older_commit(source, head, target):
    older = git("rev-parse", "HEAD~1", cwd=source)
    bring_in(target, wanted(source, older))
    assert baseline(target) == older
    assert head not in git("--git-dir", str(target), "rev-list", "--all")


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_local_repository_may_be_named_by_path_or_file_url(source, head, target, form):
    bring_in(target, wanted(form.format(source), head))
    assert baseline(target) == head


def test_a_bare_repository_works(source, head, target, tmp_path):
    git("clone", "--quiet", "--bare", str(source), str(tmp_path / "bare.git"))
    bring_in(target, wanted(tmp_path / "bare.git", head))
    assert baseline(target) == head


def test_a_commit_on_another_branch_than_the_named_one_is_found(source, head, target):
    git("checkout", "--quiet", "-b", "other", cwd=source)
    git("commit", "--quiet", "--allow-empty", "-m", "three", cwd=source)
    commit = git("rev-parse", "HEAD", cwd=source)
    bring_in(target, wanted(source, commit))
    assert baseline(target) == commit


@pytest.mark.parametrize("ref", ["main", "refs/heads/main", "", "feature/ünï#1", "refs/tags/v1"])
def test_the_branch_is_only_a_hint(source, head, target, ref):
    bring_in(target, wanted(source, head, ref))
    assert baseline(target) == head


def test_a_second_run_changes_nothing(source, head, target):
    bring_in(target, wanted(source, head))
    before = sorted((path, path.lstat().st_mtime_ns) for path in target.rglob("*"))
    shutil.rmtree(source)
    source.mkdir()
    bring_in(target, wanted(source, head))
    assert sorted((path, path.lstat().st_mtime_ns) for path in target.rglob("*")) == before


def test_what_a_killed_run_left_is_begun_again(source, head, target):
    draft = target.with_name(".repo-left")
    (draft / "objects").mkdir(parents=True)
    (draft / "shallow.lock").touch()
    target.mkdir()
    bring_in(target, wanted(source, head))
    assert baseline(target) == head
    assert not draft.exists()


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.01, 0.02, 0.03])
def test_a_run_killed_at_any_moment_is_completed_by_the_next(source, head, target, moment):
    (target.parent / "spec.json").write_bytes(codec.canonical(task_specification(str(source), head)))
    command = [sys.executable, "-m", "sandbox_supervisor", "materialise", "--folder", str(target.parent)]
    with subprocess.Popen(command, start_new_session=True) as victim:
        until(lambda: [*target.parent.glob(".repo-*")] or target.exists(), what="a beginning")
        threading.Event().wait(moment)
        with suppress(ProcessLookupError):
            os.killpg(victim.pid, signal.SIGKILL)
    bring_in(target, wanted(source, head))
    assert baseline(target) == head


def test_no_hook_and_no_remote_is_left_in_the_repository(source, head, target):
    bring_in(target, wanted(source, head))
    assert not (target / "hooks").exists()
    assert "remote" not in (target / "config").read_text()


def test_a_repository_that_belongs_to_somebody_else_works(source, head, target):
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    for path in (source, *source.rglob("*")):
        os.chown(path, 12345, 12345)
    bring_in(target, wanted(source, head))
    assert baseline(target) == head


def test_a_sha256_repository_works(target, tmp_path):
    source = tmp_path / "new"
    git("init", "--quiet", "--object-format=sha256", "--initial-branch=main", str(source))
    git("commit", "--quiet", "--allow-empty", "-m", "one", cwd=source)
    commit = git("rev-parse", "HEAD", cwd=source)
    bring_in(target, wanted(source, commit))
    assert baseline(target) == commit
    assert len(commit) == 64


def test_submodules_are_left_as_links(source, head, target, tmp_path):
    module = tmp_path / "module"
    make_repository(module)
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module), "module", cwd=source)
    git("commit", "--quiet", "-m", "with a submodule", cwd=source)
    commit = git("rev-parse", "HEAD", cwd=source)
    bring_in(target, wanted(source, commit))
    assert " commit " in git("--git-dir", str(target), "ls-tree", commit, "module")
    assert not (target / "modules").exists()


def test_lfs_pointers_stay_pointers(source, head, target):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 12\n"
    (source / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin", "--no-filters"],
        cwd=source,
        input=pointer.encode(),
        capture_output=True,
        check=True,
    )
    git("update-index", "--add", "--cacheinfo", f"100644,{blob.stdout.decode().strip()},big.bin", cwd=source)
    git("commit", "--quiet", "-m", "pointer", cwd=source)
    commit = git("rev-parse", "HEAD", cwd=source)
    bring_in(target, wanted(source, commit))
    assert git("--git-dir", str(target), "show", f"{commit}:big.bin") + "\n" == pointer


def test_old_flaws_in_author_lines_are_let_pass(source, head, target):
    content = f"tree {git('rev-parse', 'HEAD^{tree}', cwd=source)}\nauthor A<a@example.org> 1 +0000\n"
    content += "committer A <a@example.org> 1 +051800\n\nold\n"
    command = ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
    made = subprocess.run(command, cwd=source, input=content.encode(), capture_output=True, check=True)
    commit = made.stdout.decode().strip()
    git("update-ref", "refs/heads/main", commit, cwd=source)
    bring_in(target, wanted(source, commit))
    assert baseline(target) == commit


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c touch% /tmp/caisson-marker",
        "fd::17",
        "--upload-pack=touch /tmp/caisson-marker",
        "-oProxyCommand=touch /tmp/caisson-marker",
        "ssh://-oProxyCommand=touch/x",
        "ftp://example.org/x.git",
        "https://user:pass@example.org/x.git",
        "https://example.org/x.git\nhttps://example.org/y.git",
        "relative/path",
        "/somewhere/../etc",
        "",
    ],
)
def test_addresses_outside_the_allowed_forms_are_refused_before_git(head, target, url):
    assert refusal(target, wanted(url, head)).code == "url_refused"


@pytest.mark.parametrize("commit", ["HEAD", "main", "-x", "--upload-pack=x", "1" * 39, "0" * 40, "A" * 40, "", "$(id)"])
def test_a_baseline_that_is_no_full_commit_id_is_refused(source, head, target, commit):
    assert refusal(target, wanted(source, commit)).code == "baseline_malformed"


@pytest.mark.parametrize("ref", ["--upload-pack=touch", "refs/heads/-x", "a..b", "$(id)", "x y", "+refs/heads/main"])
def test_a_hostile_branch_name_never_reaches_git(source, head, target, ref):
    assert refusal(target, wanted(source, ABSENT, ref)).code == "baseline_missing"


def test_a_commit_that_the_remote_does_not_have_is_missing(source, head, target):
    failed = refusal(target, wanted(source, ABSENT))
    assert (failed.code, failed.item) == ("baseline_missing", ABSENT)
    assert "refs/heads/main" in failed.cause


def test_a_branch_that_is_gone_and_a_commit_that_is_gone_are_missing(source, head, target):
    assert refusal(target, wanted(source, ABSENT, "gone")).code == "baseline_missing"


@pytest.mark.parametrize("what", ["HEAD:file.txt", "HEAD^{tree}"])
def test_an_object_that_is_no_commit_is_missing(source, head, target, what):
    assert refusal(target, wanted(source, git("rev-parse", what, cwd=source))).code == "baseline_missing"


def test_an_empty_repository_says_so(source, target):
    git("init", "--quiet", str(source))
    assert refusal(target, wanted(source, ABSENT)).code == "repository_empty"


def test_a_shallow_repository_says_how_to_complete_it(source, head, target, tmp_path):
    git("clone", "--quiet", "--depth=1", f"file://{source}", str(tmp_path / "shallow"))
    failed = refusal(target, wanted(tmp_path / "shallow", head))
    assert failed.code == "source_shallow"
    assert "git fetch --unshallow" in failed.cause


def test_a_folder_that_is_no_repository_is_not_found(target, tmp_path):
    (tmp_path / "plain").mkdir()
    assert refusal(target, wanted(tmp_path / "plain", ABSENT)).code == "repository_not_found"


def test_a_path_that_is_nothing_is_not_found(target, tmp_path):
    assert refusal(target, wanted(tmp_path / "nothing", ABSENT)).code == "repository_not_found"


def test_a_commit_id_of_the_wrong_length_for_the_repository_says_so(source, head, target):
    assert refusal(target, wanted(source, "2" * 64)).code == "object_format"


def test_a_damaged_repository_is_refused(source, head, target):
    for path in (source / ".git" / "objects").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"damaged")
    assert refusal(target, wanted(source, head)).code in {"repository_malformed", "clone_failed", "repository_empty"}


@pytest.mark.parametrize("name", [".git", ".GIT", "..", "a/b"])
def test_a_tree_that_would_escape_is_refused(source, head, target, name):
    blob = git("rev-parse", "HEAD:file.txt", cwd=source)
    entry = b"100644 " + name.encode() + b"\0" + bytes.fromhex(blob)
    command = ["git", "hash-object", "-t", "tree", "-w", "--stdin", "--literally"]
    made = subprocess.run(command, cwd=source, input=entry, capture_output=True, check=True)
    commit = git("commit-tree", made.stdout.decode().strip(), "-m", "hostile", cwd=source)
    git("update-ref", "refs/heads/main", commit, cwd=source)
    assert refusal(target, wanted(source, commit)).code == "repository_malformed"


# --- how it is told --------------------------------------------------------------------------------------------------


def test_a_failure_is_small_and_holds_nothing_that_a_terminal_obeys():
    record = Failed("clone_failed", stage="repository", item="x" * 5000, cause="\x1b[31m" + "ü" * 9000).record()
    assert len(codec.encode(record)) <= folder.FAILURE_LIMIT
    assert "\x1b" not in record.cause
    assert record.cause.endswith("…")
