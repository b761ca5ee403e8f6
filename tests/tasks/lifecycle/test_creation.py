"""Creating a task: everything found and frozen first, or nothing at all."""

import json
from dataclasses import replace

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
from tasks_app.services.creation import create, create_task, validate_task
from tasks_app.services.creation.prepare import prepare
from tests.git_remotes import git
from tests.tasks.lifecycle.house import use
from workspaces_app.access import NOBODY, Actor
from workspaces_app.errors import Unauthenticated
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
        agent = found.flow.nodes[0].agent
        assert agent
        assert agent.permissions is Permissions.ASK

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


class TestIdempotency:
    def test_a_repeat_that_overtakes_the_first_is_answered_with_its_task(self, house, monkeypatch):
        """The first one finds the branch taken, and the last room in use: by itself."""
        others: list[Task] = []

        def slow(*arguments):
            with monkeypatch.context() as quick:
                quick.setattr(create, "prepare", prepare)
                others.append(house.create(key="once", task_branch="mine").task)
            return prepare(*arguments)

        monkeypatch.setattr(create, "prepare", slow)
        created = house.create(key="once", task_branch="mine")
        assert (created.replayed, created.task) == (True, others[0])

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
