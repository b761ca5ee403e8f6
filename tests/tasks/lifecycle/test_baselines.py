"""Where the work starts, what the result's branch may be called, and what a local work tree holds besides."""

import pytest

from tasks_app.errors import BaselineRefused
from tasks_app.models import Task
from tasks_app.services.creation.baseline import made_up_branch
from tests.git_remotes import git
from tests.tasks.lifecycle.house import use


class TestBaseline:
    def test_a_branch_a_tag_and_a_commit_are_resolved_on_the_remote(self, house, own_project):
        git(own_project.remote, "branch", "side", own_project.base)
        git(own_project.remote, "tag", "-a", "v1", own_project.base, "-m", "one")
        use(house, own_project.remote)
        for base in ("main", "refs/heads/side", "v1", "refs/tags/v1", own_project.base, ""):
            assert house.pending(base=base).base_commit == own_project.base

    @pytest.mark.parametrize("base", ["nowhere", "refs/heads/nowhere", "f" * 40])
    def test_what_is_not_on_the_remote_is_refused_by_name(self, house, base):
        with pytest.raises(BaselineRefused) as refused:
            house.create(base=base)
        assert refused.value.code == "base_missing"
        assert base in refused.value.message
        assert not Task.objects.exists()

    @pytest.mark.parametrize(
        "base",
        ["--upload-pack=touch /tmp/x", "-x", "a..b", "x y", "main:other", "+main", "@{u}", "a\nb", "$(id)", "`id`"],
    )
    def test_a_base_that_is_no_name_is_refused_before_the_remote_is_asked(self, house, base):
        with pytest.raises(BaselineRefused) as refused:
            house.create(base=base)
        assert refused.value.code == "base_malformed"

    def test_an_empty_repository_is_named_as_such(self, house, tmp_path):
        git(tmp_path, "init", "--quiet", "--bare", "empty.git")
        use(house, tmp_path / "empty.git")
        with pytest.raises(BaselineRefused) as refused:
            house.create()
        assert refused.value.code == "repository_empty"

    def test_a_repository_that_is_gone_is_refused(self, house, own_project):
        use(house, own_project.remote)
        own_project.remote.rename(own_project.remote.with_name("moved.git"))
        with pytest.raises(BaselineRefused) as refused:
            house.create()
        assert refused.value.code == "remote_missing"

    def test_the_branch_that_is_the_default_is_frozen_by_name(self, house):
        assert house.pending().base_ref == "refs/heads/main"

    def test_a_detached_head_is_frozen_as_such(self, house, own_project):
        own_project.commit({"x": "1"})
        use(house, own_project.clone)
        assert house.pending().base_ref == "HEAD"

    def test_a_default_branch_without_commits_is_named_while_others_have_some(self, house, own_project):
        git(own_project.remote, "symbolic-ref", "HEAD", "refs/heads/unborn")
        use(house, own_project.remote)
        with pytest.raises(BaselineRefused) as refused:
            house.create()
        assert refused.value.code == "base_missing"

    def test_the_baseline_does_not_follow_the_branch(self, house, own_project):
        use(house, own_project.remote)
        task = house.pending(base="main")
        own_project.move("main", own_project.commit({"x": "1"}))
        assert house.again(task).base_commit == own_project.base


class TestBranch:
    def test_a_branch_is_made_up_from_the_title_and_the_id(self, house):
        task = house.pending(title="Füttere die Hunde – jetzt!")
        assert task.task_branch == made_up_branch(task.title, task.pk)
        assert task.task_branch.startswith("caisson/futtere-die-hunde-jetzt-")

    @pytest.mark.parametrize("title", ["猫", "!!!", "-"])
    def test_a_title_without_letters_gives_a_branch_all_the_same(self, title):
        assert made_up_branch(title, "tsk_abcdef").startswith("caisson/task-")

    @pytest.mark.parametrize("taken", ["work", "work/inner", "wo"])
    def test_a_branch_that_is_taken_or_in_the_way_is_refused(self, house, own_project, taken):
        git(own_project.remote, "branch", taken, own_project.base)
        use(house, own_project.remote)
        wanted = "wo/rk" if taken == "wo" else "work"
        with pytest.raises(BaselineRefused) as refused:
            house.create(task_branch=wanted)
        assert refused.value.code == "branch_taken"

    def test_a_branch_of_another_task_is_taken_before_it_is_pushed(self, house):
        house.pending(task_branch="mine")
        with pytest.raises(BaselineRefused) as refused:
            house.create(task_branch="mine")
        assert refused.value.code == "branch_taken"
        assert Task.objects.count() == 1

    @pytest.mark.parametrize("branch", ["-x", "HEAD", "refs/heads/x", "a..b", "x.lock", "a b", "x/", "/x", "ü\u202e"])
    def test_a_branch_name_that_git_or_we_refuse_is_refused(self, house, branch):
        with pytest.raises(BaselineRefused) as refused:
            house.create(task_branch=branch)
        assert refused.value.code == "branch_malformed"

    def test_the_branch_is_looked_for_where_it_will_be_pushed(self, house, own_project, tmp_path):
        target = tmp_path / "own" / "push.git"
        git(tmp_path, "clone", "--quiet", "--bare", str(own_project.remote), str(target))
        git(target, "branch", "mine", own_project.base)
        use(house, own_project.remote, push=target)
        with pytest.raises(BaselineRefused):
            house.create(task_branch="mine")
        assert house.pending(task_branch="yours").push_url == str(target)


class TestDirtyTree:
    def test_what_is_not_committed_is_named_and_not_used(self, house, own_project):
        git(own_project.clone, "checkout", "--quiet", "main")
        readme = next(path for path in own_project.clone.iterdir() if path.is_file())
        readme.write_text("changed\n")
        (own_project.clone / "new.txt").write_text("new\n")
        (own_project.clone / "staged.txt").write_text("staged\n")
        git(own_project.clone, "add", "staged.txt")
        use(house, own_project.clone)
        created = house.create()
        assert all(name in created.warnings[0] for name in (readme.name, "new.txt", "staged.txt"))
        assert created.task.base_commit == git(own_project.clone, "rev-parse", "HEAD")

    def test_a_clean_tree_and_a_bare_repository_need_no_warning(self, house, own_project):
        git(own_project.clone, "checkout", "--quiet", "main")
        assert house.create().warnings == ()
        use(house, own_project.clone)
        assert house.create().warnings == ()

    def test_ignored_files_are_not_named(self, house, own_project):
        git(own_project.clone, "checkout", "--quiet", "main")
        (own_project.clone / ".git" / "info").mkdir(exist_ok=True)
        own_project.move("main", own_project.commit({".gitignore": "*.log\n"}))
        git(own_project.clone, "checkout", "--quiet", "-B", "main", "HEAD")
        (own_project.clone / "noise.log").write_text("x")
        use(house, own_project.clone)
        assert house.create().warnings == ()

    def test_looking_runs_nothing_that_the_repository_configures(self, house, own_project, tmp_path):
        marker = tmp_path / "marker"
        clone = own_project.clone
        git(clone, "checkout", "--quiet", "main")
        script = tmp_path / "evil.sh"
        script.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
        script.chmod(0o755)
        for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "core.sshCommand", "core.pager"):
            git(clone, "config", key, str(script))
        git(clone, "config", "core.hooksPath", str(tmp_path))
        (tmp_path / "post-index-change").write_text(script.read_text())
        (tmp_path / "post-index-change").chmod(0o755)
        (clone / ".gitattributes").write_text("* filter=evil\n")
        readme = next(path for path in clone.iterdir() if path.is_file() and path.name != ".gitattributes")
        readme.write_text("changed\n")
        marker.unlink(missing_ok=True)
        use(house, clone)
        assert readme.name in house.create().warnings[0]
        assert not marker.exists()

    def test_a_broken_index_is_no_reason_to_refuse(self, house, own_project):
        git(own_project.clone, "checkout", "--quiet", "main")
        (own_project.clone / ".git" / "index").write_bytes(b"nonsense")
        use(house, own_project.clone)
        assert house.create().warnings == ()
