"""A bundle is hostile until header, objects and descent have been checked, and leaves no trace in the mirror."""

import struct
from pathlib import Path

import pytest

from tasks_app import git as our_git
from tasks_app.services.delivery import bundle, limits, mirror
from tests.git_remotes import Project, git, reach

BRANCH = "caisson/work"


@pytest.fixture
def mirrored(project: Project) -> Path:
    return mirror.prepare(reach(str(project.remote)), commit=project.base, ref="refs/heads/main")


def refusal(path: Path, mirrored: Path, *, base: str, commit: str) -> str:
    with pytest.raises(bundle.BundleRefused) as refused, bundle.unpacked(path, mirrored) as objects:
        bundle.check_descent(mirrored, objects, base=base, commit=commit)
    return refused.value.code


def test_a_bundle_of_a_descendant_is_taken(project, mirrored):
    commit = project.commit({"a.txt": "a"})
    path = project.bundle(commit, branch=BRANCH)
    header = bundle.read_header(path)
    assert (header.ref, header.tip, header.prerequisites) == (f"refs/heads/{BRANCH}", commit, (project.base,))
    with bundle.unpacked(path, mirrored) as objects:
        bundle.check_descent(mirrored, objects, base=project.base, commit=commit)


def test_nothing_of_a_bundle_stays_in_the_mirror(project, mirrored):
    commit = project.commit({"a.txt": "a"})
    with bundle.unpacked(project.bundle(commit, branch=BRANCH), mirrored):
        pass
    assert our_git.run("cat-file", "-e", commit, repo=mirrored, accept=(0, 1, 128)).returncode != 0
    assert not list(mirrored.parent.glob("*quarantine-*"))


def test_a_commit_that_does_not_descend_from_the_baseline_is_refused(project, mirrored):
    git(project.clone, "checkout", "--quiet", "--orphan", "elsewhere")
    git(project.clone, "commit", "--quiet", "--message", "unrelated")
    stranger = git(project.clone, "rev-parse", "HEAD")
    git(project.clone, "branch", "x", stranger)
    path = project.clone.parent / "x.bundle"
    git(project.clone, "bundle", "create", str(path), "refs/heads/x")
    assert refusal(path, mirrored, base=project.base, commit=stranger) == "not_a_descendant"


def test_a_commit_that_the_bundle_does_not_hold_is_refused(project, mirrored):
    path = project.bundle(project.commit({"a.txt": "a"}), branch=BRANCH)
    assert refusal(path, mirrored, base=project.base, commit="1" * 40) == "bundle_commit"


def test_a_blob_announced_as_the_commit_is_refused(project, mirrored):
    commit = project.commit({"a.txt": "a"})
    blob = git(project.clone, "rev-parse", f"{commit}:a.txt")
    assert refusal(project.bundle(commit, branch=BRANCH), mirrored, base=project.base, commit=blob) == "bundle_commit"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a bundle",
        b"# v2 git bundle\n",
        b"# v9 git bundle\n\nPACK",
        b"\xff\xfe\n\n",
        b"# v2 git bundle\n\nJUNKJUNKJUNK",
    ],
)
def test_what_is_no_bundle_is_refused(tmp_path, content):
    path = tmp_path / "x.bundle"
    path.write_bytes(content)
    with pytest.raises(bundle.BundleRefused) as refused:
        bundle.read_header(path)
    assert refused.value.code in {"bundle_malformed", "bundle_refs"}


def test_a_bundle_that_names_a_second_ref_is_refused(project, tmp_path):
    commit = project.commit({"a.txt": "a"})
    git(project.clone, "branch", "one", commit)
    git(project.clone, "branch", "two", commit)
    path = tmp_path / "x.bundle"
    git(project.clone, "bundle", "create", str(path), "one", "two", f"^{project.base}")
    with pytest.raises(bundle.BundleRefused) as refused:
        bundle.read_header(path)
    assert refused.value.code == "bundle_refs"


def test_a_filtered_bundle_is_refused(tmp_path):
    path = tmp_path / "x.bundle"
    path.write_bytes(
        b"# v3 git bundle\n@object-format=sha1\n@filter=blob:none\n" + b"1" * 40 + b" refs/heads/x\n\nPACK"
    )
    with pytest.raises(bundle.BundleRefused) as refused:
        bundle.read_header(path)
    assert refused.value.code == "bundle_malformed"


def test_a_header_without_end_is_refused(tmp_path):
    path = tmp_path / "x.bundle"
    path.write_bytes(b"# v2 git bundle\n" + b"-" + b"1" * 40 + b" x\n" * 100_000)
    with pytest.raises(bundle.BundleRefused) as refused:
        bundle.read_header(path)
    assert refused.value.code == "bundle_malformed"


@pytest.mark.parametrize(("count", "allowed"), [(limits.OBJECT_LIMIT, True), (limits.OBJECT_LIMIT + 1, False)])
def test_the_number_of_objects_is_bounded_before_anything_is_unpacked(tmp_path, count, allowed):
    path = tmp_path / "x.bundle"
    path.write_bytes(b"# v2 git bundle\n" + b"1" * 40 + b" refs/heads/x\n\nPACK" + struct.pack(">II", 2, count))
    if allowed:
        assert bundle.read_header(path).objects == count
        return
    with pytest.raises(bundle.BundleRefused) as refused:
        bundle.read_header(path)
    assert refused.value.code == "bundle_too_many_objects"


def test_a_cut_pack_is_refused(project, mirrored):
    path = project.bundle(project.commit({"a.txt": "a" * 100}), branch=BRANCH)
    path.write_bytes(path.read_bytes()[:-30])
    assert refusal(path, mirrored, base=project.base, commit="1" * 40) == "bundle_objects"


def test_a_pack_with_a_flipped_byte_is_refused(project, mirrored):
    path = project.bundle(project.commit({"a.txt": "a" * 100}), branch=BRANCH)
    data = bytearray(path.read_bytes())
    data[-40] ^= 0xFF
    path.write_bytes(data)
    assert refusal(path, mirrored, base=project.base, commit="1" * 40) == "bundle_objects"


def hostile_tree(project: Project, name: str, mode: str = "100644") -> str:
    """Commit a tree with one entry that an honest Git would not write."""
    blob = git(project.clone, "hash-object", "-w", "--stdin", stdin=b"[core]\n\tfsmonitor = touch /tmp/x\n")
    tree = git(
        project.clone,
        "hash-object", "-t", "tree", "-w", "--literally", "--stdin",
        stdin=f"{mode} {name}".encode() + b"\0" + bytes.fromhex(blob),
    )  # fmt: skip
    return git(project.clone, "commit-tree", tree, "-p", project.base, "-m", "hostile")


@pytest.mark.parametrize("name", [".git", ".GIT", "git~1", "..", ".", "a/b", ".g\u200cit"])
def test_a_tree_that_would_write_into_a_git_folder_is_refused(project, mirrored, name):
    commit = hostile_tree(project, name)
    path = project.bundle(commit, branch=BRANCH)
    assert refusal(path, mirrored, base=project.base, commit=commit) == "bundle_objects"


def test_a_linked_gitmodules_is_refused(project, mirrored):
    commit = hostile_tree(project, ".gitmodules", mode="120000")
    path = project.bundle(commit, branch=BRANCH)
    assert refusal(path, mirrored, base=project.base, commit=commit) == "bundle_objects"


def test_a_submodule_address_that_is_an_option_is_refused(project, mirrored):
    commit = project.commit({".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = -u./payload\n'})
    path = project.bundle(commit, branch=BRANCH)
    assert refusal(path, mirrored, base=project.base, commit=commit) == "bundle_objects"


def test_a_bundle_without_a_needed_object_is_refused(project, mirrored):
    """A thin bundle whose prerequisite is not the baseline but a commit that was never given."""
    first = project.commit({"a.txt": "a"})
    second = project.commit({"b.txt": "b"}, onto=first)
    path = project.bundle(second, branch=BRANCH, base=first)
    assert refusal(path, mirrored, base=project.base, commit=second) in {"bundle_objects", "bundle_incomplete"}


def test_a_merge_that_brings_older_history_of_the_remote_is_taken(project):
    older = project.base
    newer = project.commit({"main.txt": "m"})
    project.move("main", newer)
    project.base = newer
    side = project.commit({"side.txt": "s"}, onto=older)
    git(project.clone, "checkout", "--quiet", "--detach", newer)
    git(project.clone, "merge", "--quiet", "--no-edit", side)
    commit = git(project.clone, "rev-parse", "HEAD")
    mirrored = mirror.prepare(reach(str(project.remote)), commit=newer, ref="refs/heads/main")
    with bundle.unpacked(project.bundle(commit, branch=BRANCH), mirrored) as objects:
        bundle.check_descent(mirrored, objects, base=newer, commit=commit)


def test_a_mirror_is_filled_without_the_remotes_hooks_or_programs(project, tmp_path):
    sentinel = tmp_path / "ran"
    for key in ("core.fsmonitor", "core.alternateRefsCommand", "uploadpack.packObjectsHook"):
        git(project.remote, "config", key, f"touch {sentinel}")
    (project.remote / "objects" / "info" / "alternates").write_text(f"{project.clone}/.git/objects\n")
    mirror.prepare(reach(str(project.remote)), commit=project.base, ref="refs/heads/main")
    assert not sentinel.exists()


def test_a_damaged_mirror_is_built_again(project, mirrored):
    for file in (*mirrored.glob("objects/pack/*"), *mirrored.glob("objects/??/*")):
        file.chmod(0o600)
        file.write_bytes(b"damaged")
    again = mirror.prepare(reach(str(project.remote)), commit=project.base, ref="refs/heads/main")
    assert our_git.run("cat-file", "-t", project.base, repo=again).text == "commit"


def test_a_mirror_that_was_removed_is_built_again(project, mirrored):
    import shutil

    shutil.rmtree(mirrored)
    assert mirror.prepare(reach(str(project.remote)), commit=project.base, ref="refs/heads/main") == mirrored
    assert (mirrored / "objects").is_dir()


def test_a_baseline_whose_branch_has_moved_on_is_fetched_by_its_id(project):
    newer = project.commit({"n.txt": "n"})
    project.move("main", newer)
    project.move("unrelated", project.base)
    path = mirror.prepare(reach(str(project.remote)), commit=project.base, ref="refs/heads/main")
    assert our_git.run("cat-file", "-t", project.base, repo=path).text == "commit"


def test_a_baseline_that_the_remote_lost_is_said_so(project):
    from tasks_app.remotes import RemoteProblem

    with pytest.raises(RemoteProblem) as problem:
        mirror.prepare(reach(str(project.remote)), commit="1" * 40, ref="refs/heads/main")
    assert problem.value.code in {"baseline_missing", "remote_failed"}
