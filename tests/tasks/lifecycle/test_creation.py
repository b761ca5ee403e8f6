"""Creating a task: everything found and frozen first, or nothing at all."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from policy_app.services.publish import current_revision, publish_revision
from registry_app.models import FlowVersion
from registry_app.services.flows import publish_flow, yank_flow
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Permissions
from sandbox_supervisor.protocol.spec import TaskSpecification
from tasks_app.errors import (
    BaselineRefused,
    CapabilityGap,
    Forbidden,
    KeyReused,
    NotVisible,
    QuotaReached,
    Refused,
)
from tasks_app.models import IdempotencyRecord, Quota, Task, TaskEvent
from tasks_app.services import lifecycle
from tasks_app.services.creation import create_task, validate_task
from tasks_app.services.creation.baseline import made_up_branch
from tests.git_remotes import git, make_project
from workspaces_app.access import NOBODY, Actor
from workspaces_app.errors import Unauthenticated
from workspaces_app.services.repositories import register
from workspaces_app.states import Role

TWO_GAPS = """
apiVersion: caisson/v1
kind: Flow
name: gaps
nodes:
  - key: work
    agent: {driver: opencode, prompt: "Do it.", skills: [repo-map], model: main}
"""
ASKING = """
apiVersion: caisson/v1
kind: Flow
name: asking
nodes:
  - key: work
    agent: {driver: scripted, prompt: "Do it.", permissions: allow, playbook: [{say: hello}]}
"""


@pytest.fixture
def own_project(tmp_path: Path):
    """A repository that the test may change."""
    folder = tmp_path / "own"
    folder.mkdir()
    return make_project(folder)


def use(house, path, *, slug="own", push=""):
    from workspaces_app.services.repositories import allow_root

    allow_root(workspace=house.workspace, path=str(Path(path).parent), by=house.actor)
    repository = register(
        workspace=house.workspace, slug=slug, clone_url=str(path), push_url=str(push) if push else "", by=house.actor
    )
    house.repository = repository
    return repository


def nothing_was_made(house) -> bool:
    rows = Task.objects.count(), TaskEvent.objects.count(), IdempotencyRecord.objects.count()
    used = sum(Quota.objects.values_list("used", flat=True))
    return rows == (0, 0, 0) and used == 0 and not house.world.history


class TestFreezing:
    def test_everything_that_the_work_depends_on_is_frozen(self, house):
        task = house.pending(brief="Feed them twice a day.", inputs={"count": 3})
        policy = current_revision()
        assert task.base_commit == house.project.base
        assert (task.flow_version_id, task.inputs) == (house.flow.pk, {"count": 3})
        assert (task.policy_revision_id, task.max_retention) == (policy.pk, policy.max_retention)
        assert (task.provider, task.provider_version, task.image_digest) == ("scripted", "1", policy.runner_image)
        assert task.policy["live_task_quota"] == policy.live_task_quota
        assert {entry["kind"] for entry in task.capabilities} >= {"flow", "policy"}
        assert task.capability_digest.startswith("sha256:")

    def test_the_specification_says_the_same_and_its_digest_fits(self, house):
        task = house.pending(brief="Feed them.")
        raw = bytes(task.specification)
        found = codec.decode(raw, TaskSpecification)
        assert task.specification_digest == codec.digest(found)
        assert codec.canonical(found) == raw
        assert (found.task.id, found.task.brief, found.task.creator) == (task.pk, "Feed them.", house.admin.username)
        assert (found.repository.base_commit, found.repository.task_branch) == (task.base_commit, task.task_branch)
        assert found.nonce == task.nonce
        assert found.flow == house.flow.compiled

    def test_defaults_of_the_flow_are_frozen_too(self, house):
        assert house.pending().inputs == {"count": 1}

    def test_two_tasks_of_the_same_things_have_the_same_capability_digest(self, house):
        first, second = house.pending(), house.pending()
        assert first.capability_digest == second.capability_digest
        assert first.sandbox_name != second.sandbox_name
        assert first.nonce != second.nonce

    def test_another_policy_gives_another_digest_and_leaves_the_first_task_alone(self, house):
        first = house.pending()
        now = current_revision()
        publish_revision(
            based_on=now.number,
            message="Less memory.",
            author=house.actor,
            values=replace(now.values, memory_limit=now.memory_limit - 1, memory_request=1024),
            now=house.clock(),
        )
        second = house.pending()
        assert first.capability_digest != second.capability_digest
        assert (house.again(first).policy_revision_id, second.policy["memory_limit"]) == (now.pk, now.memory_limit - 1)
        assert house.again(first).memory_limit == now.memory_limit

    def test_a_policy_that_asks_puts_every_permission_to_a_person(self, house):
        now = current_revision()
        flow = publish_flow(ASKING, workspace=None, by=house.actor, based_on=None)
        values = replace(now.values, permission_policy=type(now.values.permission_policy)("ask"))
        publish_revision(based_on=now.number, message="Ask.", author=house.actor, values=values, now=house.clock())
        task = house.pending(flow_version_id=flow.pk)
        found = codec.decode(bytes(task.specification), TaskSpecification)
        assert found.flow.nodes[0].agent.permissions is Permissions.ASK

    def test_no_secret_is_in_the_specification_or_the_row(self, house):
        from tasks_app.services import tokens

        task = house.pending()
        text = json.dumps(
            Task.objects.filter(pk=task.pk).values()[0],
            default=lambda v: bytes(v).decode() if isinstance(v, memoryview | bytes) else str(v),
        )
        for secret in (
            tokens.task_token(task),
            tokens.dial_token(task),
            tokens.task_token(task, tokens.Audience.MATERIALISE),
        ):
            assert secret.rpartition(".")[2] not in text

    def test_a_task_knows_whether_its_flow_delivers(self, house):
        assert not house.pending().requires_delivery
        assert house.pending(flow_version_id=house.delivery_flow.pk).requires_delivery

    def test_the_sandbox_name_is_made_of_ours_alone_and_short_enough(self, house):
        task = house.pending(title="'; rm -rf / #")
        assert task.sandbox_name.startswith("cs-")
        assert len(task.sandbox_name) <= 40
        assert task.sandbox_name.replace("-", "").isalnum()


class TestRefusals:
    def test_all_gaps_are_named_at_once_and_nothing_is_made(self, house):
        flow = publish_flow(TWO_GAPS, workspace=None, by=house.actor, based_on=None)
        with pytest.raises(CapabilityGap) as gap:
            house.create(flow_version_id=flow.pk)
        kinds = {found["kind"] for found in gap.value.facts["gaps"]}
        assert kinds >= {"driver", "skill", "model"}
        assert nothing_was_made(house)

    def test_a_provider_that_is_not_installed_is_a_gap_like_any_other(self, house, settings):
        from tasks_app.services import providers

        settings.PROVIDERS = ()
        flow = publish_flow(TWO_GAPS, workspace=None, by=house.actor, based_on=None)
        providers._ready.clear()
        with pytest.raises(CapabilityGap) as gap:
            house.create(flow_version_id=flow.pk)
        assert {found["kind"] for found in gap.value.facts["gaps"]} >= {"driver", "provider"}

    def test_a_withdrawn_flow_is_a_gap(self, house):
        yank_flow(house.flow, because="too slow", by=house.actor, now=house.clock())
        with pytest.raises(CapabilityGap):
            house.create()

    @pytest.mark.parametrize(
        ("inputs", "code"),
        [
            ({"count": 0}, "wrong_input"),
            ({"count": "two"}, "wrong_input"),
            ({"cuont": 1}, "unknown_input"),
        ],
    )
    def test_inputs_that_do_not_fit_are_named_without_their_value(self, house, inputs, code):
        with pytest.raises(Refused) as refused:
            house.create(inputs=inputs)
        assert [problem["code"] for problem in refused.value.facts["errors"]] == [code]
        assert nothing_was_made(house)

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"title": "", "brief": ""}, "title_missing"),
            ({"title": "x" * 201}, "title_too_long"),
            ({"brief": "x" * (64 * 1024 + 1)}, "brief_too_long"),
            ({"brief": "a\x00b"}, "text_malformed"),
            ({"brief": "a\ud800b"}, "text_malformed"),
        ],
    )
    def test_texts_outside_their_limits_are_refused(self, house, changes, code):
        with pytest.raises(Refused) as refused:
            house.create(**changes)
        assert refused.value.code == code

    def test_texts_at_their_limits_are_taken(self, house):
        task = house.pending(title="x" * 200, brief="y" * 64 * 1024)
        assert (len(task.title), len(task.brief)) == (200, 64 * 1024)

    def test_a_missing_title_is_the_first_line_of_the_brief(self, house):
        assert house.pending(title="", brief="\n  Feed the cat \nand the dog").title == "Feed the cat"
        assert len(house.pending(title="", brief="z" * 500).title) == 200

    def test_a_repository_of_another_workspace_is_not_visible(self, house):
        with pytest.raises(NotVisible):
            house.create(repository_id="rep_other")

    def test_a_flow_version_that_is_not_there_is_not_visible(self, house):
        with pytest.raises(NotVisible):
            house.create(flow_version_id="flv_other")

    @pytest.mark.parametrize(
        ("actor", "error"),
        [
            (NOBODY, Unauthenticated),
            (Actor(label="user:eve", user_id=998, roles={"wsp_other": Role.ADMIN}), NotVisible),
        ],
    )
    def test_only_members_create_tasks(self, house, actor, error):
        with pytest.raises(error):
            create_task(actor, house.request(), idempotency_key="k")

    def test_a_viewer_may_not_create_tasks(self, house):
        viewer = Actor(label="user:bob", user_id=house.admin.pk, roles={house.workspace.pk: Role.VIEWER})
        with pytest.raises(Forbidden):
            create_task(viewer, house.request(), idempotency_key="k")

    @pytest.mark.parametrize("key", ["", "k" * 201, "a\nb"])
    def test_a_key_that_is_none_is_refused(self, house, key):
        with pytest.raises(Refused):
            create_task(house.actor, house.request(), idempotency_key=key)


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
        assert nothing_was_made(house)

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


class TestIdempotency:
    def test_the_same_key_gives_the_same_task(self, house):
        first, second = house.create(key="once"), house.create(key="once")
        assert (first.task.pk, first.replayed, second.replayed) == (second.task.pk, False, True)
        assert Task.objects.count() == 1
        assert Quota.objects.get(scope="deployment").used == 1

    def test_the_same_key_with_another_body_is_refused(self, house):
        house.create(key="once")
        with pytest.raises(KeyReused):
            house.create(key="once", title="Another")
        assert Task.objects.count() == 1

    def test_a_refused_request_does_not_use_the_key_up(self, house):
        with pytest.raises(BaselineRefused):
            house.create(key="once", base="nowhere")
        assert house.create(key="once").task.pk

    def test_a_replay_does_not_look_at_the_remote_again(self, house, own_project):
        use(house, own_project.remote)
        first = house.create(key="once")
        own_project.remote.rename(own_project.remote.with_name("moved.git"))
        assert house.create(key="once").task.pk == first.task.pk

    def test_a_replay_repeats_the_warnings(self, house, own_project):
        git(own_project.clone, "checkout", "--quiet", "main")
        (own_project.clone / "new.txt").write_text("new\n")
        use(house, own_project.clone)
        assert house.create(key="once").warnings == house.create(key="once").warnings != ()

    def test_keys_of_two_members_are_not_the_same_key(self, house):
        from workspaces_app.models import Membership, User

        other = User.objects.create(username="bob")
        Membership.objects.create(workspace=house.workspace, user=other, role=Role.OPERATOR)
        first = house.create(key="once")
        bob = Actor(label="user:bob", user_id=other.pk, roles={house.workspace.pk: Role.OPERATOR})
        second = create_task(bob, house.request(), idempotency_key="once")
        assert first.task.pk != second.task.pk


class TestQuota:
    def test_the_last_one_fits_and_the_next_is_refused(self, house):
        limit = current_revision().live_task_quota
        scope = f"workspace:{house.workspace.pk}"
        house.pending()
        Quota.objects.filter(scope=scope).update(used=limit - 1)
        house.pending()
        with pytest.raises(QuotaReached):
            house.create()
        assert Quota.objects.get(scope=scope).used == limit
        assert Quota.objects.get(scope="deployment").used == 2

    def test_a_freed_place_can_be_taken_again(self, house):
        task = house.pending()
        Quota.objects.update(used=current_revision().live_task_quota)
        lifecycle.request_cancel(task.pk, actor="user:ada")
        assert house.create().task.pk


def test_validating_goes_the_same_way_and_makes_nothing(house):
    prepared = validate_task(house.actor, house.request(brief="Feed them."))
    assert prepared.columns["base_commit"] == house.project.base
    assert nothing_was_made(house)
    with pytest.raises(BaselineRefused):
        validate_task(house.actor, house.request(base="nowhere"))


def test_creation_is_told_in_the_history_with_who_asked(house):
    task = house.pending()
    event = task.events.get()
    assert (event.kind, event.actor, event.at) == ("task.created", house.actor.label, house.clock())


def test_a_flow_of_another_workspace_is_not_visible(house):
    from workspaces_app.models import Workspace

    other = Workspace.objects.create(slug="other", name="Other")
    theirs = FlowVersion.objects.get(pk=house.flow.pk)
    theirs.flow.workspace = other
    theirs.flow.save()
    with pytest.raises(NotVisible):
        house.create()
