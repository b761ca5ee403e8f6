"""The window, its end, deletion by a person, and nothing else."""

from datetime import timedelta

import pytest

from policy_app.services.publish import current_revision
from sandbox_providers.scripted import Fault
from sandbox_supervisor.protocol.messages import Desired
from sandbox_supervisor.protocol.states import GraphState
from tasks_app.errors import Forbidden, NotVisible
from tasks_app.kernel import SKEW_GUARD, SNAPSHOT_PATIENCE
from tasks_app.models import Quota, TaskSnapshot
from tasks_app.services import contact, lifecycle, observation, provisioning, retention
from tasks_app.states import FailureCode, Presence, RemovalReason, Status
from workspaces_app.access import Actor
from workspaces_app.models import AuditEvent
from workspaces_app.states import Role

DESTRUCTIVE = {"terminate", "clean_up"}


def destroyed(house) -> list[str]:
    return [done.verb for done in house.world.history if done.verb in DESTRUCTIVE]


def at_deadline(house, task, after: timedelta):
    house.clock.moment = task.retain_until + after
    house.clock.instant = (house.clock.moment - house.clock.moment.replace(year=2029)).total_seconds()
    retention._guard = type(retention._guard)(monotonic=house.clock.monotonic)
    house.reclaim_all()
    return house.again(task)


class TestDeadline:
    @pytest.mark.parametrize("after", [-timedelta(seconds=1), timedelta(0), timedelta(seconds=1), SKEW_GUARD])
    def test_inside_the_window_and_its_guard_nothing_is_destroyed(self, house, after):
        task = house.archived(house.ended())
        assert at_deadline(house, task, after).presence == Presence.PRESENT
        assert not destroyed(house)

    def test_past_it_everything_is_removed_and_the_record_stays(self, house):
        task = house.archived(house.ended())
        task = at_deadline(house, task, SKEW_GUARD + timedelta(seconds=1))
        assert (task.presence, task.status, task.removal_reason) == (
            Presence.RECLAIMED,
            Status.COMPLETED,
            RemovalReason.DEADLINE_PASSED,
        )
        assert task.reclaimed_at == house.clock()
        assert not house.world.boxes
        assert TaskSnapshot.objects.get(task=task).data == {"nodes": []}

    def test_capacity_is_freed_once_when_the_sandbox_is_gone(self, house):
        task = house.archived(house.ended())
        at_deadline(house, task, SKEW_GUARD + timedelta(seconds=1))
        house.reclaim_all()
        assert set(Quota.objects.values_list("used", flat=True)) == {0}

    @pytest.mark.parametrize("state", ["pending", "starting", "running"])
    def test_a_task_that_has_not_ended_is_never_reclaimed(self, house, state):
        task = getattr(house, state)()
        house.clock.advance(days=1000)
        house.reclaim_all()
        house.reclaim_all()
        assert house.again(task).presence == task.presence
        assert not destroyed(house)

    def test_a_missing_snapshot_delays_and_is_then_given_up(self, house):
        task = house.ended()
        edge = SKEW_GUARD + task.archive_patience
        assert at_deadline(house, task, edge).presence == Presence.PRESENT
        house.reclaim_all()
        assert house.kinds(task).count("archive.missing") == 1
        assert at_deadline(house, task, edge + timedelta(seconds=1)).presence == Presence.RECLAIMED
        assert house.kinds(task).count("archive.lost") == 1

    def test_a_rerun_at_the_deadline_is_waited_for_then_stopped_and_reclaimed(self, house):
        task = house.archived(house.ended())
        house.beat(task, round=2)
        edge = SKEW_GUARD + task.rerun_patience
        waiting = at_deadline(house, task, edge)
        assert (waiting.status, waiting.presence) == (Status.RUNNING, Presence.PRESENT)
        stopped = at_deadline(house, task, edge + timedelta(seconds=1))
        assert (stopped.status, stopped.failure_code) == (Status.FAILED, FailureCode.RETENTION_ENDED)
        gone = at_deadline(house, task, SKEW_GUARD + task.archive_patience + timedelta(hours=1))
        assert gone.presence == Presence.RECLAIMED
        assert gone.retain_until == task.retain_until

    def test_a_shorter_policy_of_today_changes_no_task_of_yesterday(self, house):
        task = house.archived(house.ended())
        longest = current_revision().max_retention
        assert task.max_retention == longest
        house.clock.advance(days=2)
        house.reclaim_all()
        assert house.again(task).presence == Presence.PRESENT

    def test_a_jump_of_the_database_clock_waits_for_a_confirming_pass(self, house):
        task = house.archived(house.ended())
        house.reclaim_all()
        house.clock.jump(days=30)
        house.reclaim_all()
        assert house.again(task).presence == Presence.PRESENT
        house.clock.advance(seconds=60)
        house.reclaim_all()
        assert house.again(task).presence == Presence.RECLAIMED

    def test_a_hint_alone_never_reclaims_by_deadline(self, house):
        task = house.archived(house.ended())
        house.clock.advance(days=300)
        assert retention.reclaim(task.pk).presence == Presence.PRESENT

    def test_what_is_left_of_a_lost_sandbox_is_removed_at_the_deadline(self, house):
        task = house.running()
        house.world.kill(task.sandbox_name)
        observation.sweep()
        task = at_deadline(house, house.again(task), SKEW_GUARD + timedelta(seconds=1))
        assert task.presence == Presence.RECLAIMED
        assert not house.world.boxes

    def test_a_task_that_never_had_a_sandbox_is_closed_without_a_call(self, house):
        task = lifecycle.request_cancel(house.pending().pk, actor="user:ada")
        task = at_deadline(house, task, SKEW_GUARD + timedelta(seconds=1))
        assert task.presence == Presence.RECLAIMED
        assert not house.world.history

    def test_a_countdown_is_told_once_a_day_and_once_an_hour_before(self, house):
        task = house.archived(house.ended())
        for left in (timedelta(hours=25), timedelta(hours=23), timedelta(hours=22), timedelta(minutes=59)):
            at_deadline(house, task, -left)
        assert house.kinds(task).count("task.expiring") == 2

    def test_reads_and_observations_leave_the_deadline_alone(self, house):
        task = house.ended()
        for _ in range(20):
            house.clock.advance(seconds=10)
            observation.sweep()
            contact.sweep()
            house.beat(task, graph=GraphState.SUCCEEDED)
        assert house.again(task).retain_until == task.retain_until

    def test_tasks_that_wait_for_their_snapshot_keep_no_other_from_being_removed(self, house, monkeypatch):
        monkeypatch.setattr(retention, "AT_ONCE", 1)
        waiting, ready = house.ended(task_branch="a"), house.archived(house.ended(task_branch="b"))
        at_deadline(house, ready, SKEW_GUARD + timedelta(seconds=1))
        for _ in range(100):
            house.reclaim_all()
        assert (house.again(waiting).presence, house.again(ready).presence) == (Presence.PRESENT, Presence.RECLAIMED)


class TestRemovalThatFails:
    @pytest.mark.parametrize("verb", ["terminate", "clean_up"])
    @pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.DENIED, Fault.THROTTLED])
    def test_it_is_tried_again_until_nothing_remains(self, house, verb, fault):
        task = house.archived(house.ended())
        house.world.plan(verb, fault)
        task = at_deadline(house, task, SKEW_GUARD + timedelta(seconds=1))
        assert (task.presence, bool(task.removal_remaining)) == (Presence.RECLAIMING, True)
        house.clock.advance(seconds=31)
        house.reclaim_all()
        task = house.again(task)
        assert (task.presence, task.removal_remaining) == (Presence.RECLAIMED, [])

    def test_it_backs_off_and_shows_what_remains(self, house):
        task = house.archived(house.ended())
        house.box(task).stuck = ("node k1 does not answer",)
        task = at_deadline(house, task, SKEW_GUARD + timedelta(seconds=1))
        calls = len(destroyed(house))
        house.reclaim_all()
        assert len(destroyed(house)) == calls
        assert task.removal_remaining == ["node k1 does not answer"]
        assert task.quota_held

    def test_a_crash_after_the_intent_is_carried_on_by_the_sweep(self, house):
        task = house.archived(house.ended())
        house.clock.moment = task.retain_until + SKEW_GUARD + timedelta(seconds=1)
        retention._claim(task.pk, clock_trusted=True)
        assert (house.again(task).presence, destroyed(house)) == (Presence.RECLAIMING, [])
        house.reclaim_all()
        assert house.again(task).presence == Presence.RECLAIMED

    def test_a_removal_that_has_begun_goes_on_although_the_clock_is_not_trusted(self, house):
        task = house.archived(house.ended())
        house.clock.moment = task.retain_until + SKEW_GUARD + timedelta(seconds=1)
        retention._claim(task.pk, clock_trusted=True)
        assert retention.reclaim(task.pk).presence == Presence.RECLAIMED


class TestDeletion:
    def test_an_ended_and_archived_task_is_removed_at_once(self, house):
        task = house.archived(house.ended())
        retention.delete_task(task.pk, actor=house.actor)
        task = retention.reclaim(task.pk)
        assert (task.presence, task.removal_reason) == (Presence.RECLAIMED, RemovalReason.PERSON_DELETED)
        assert task.status == Status.COMPLETED

    def test_a_running_task_is_cancelled_asked_for_its_snapshot_and_removed(self, house):
        task = house.running()
        assert retention.delete_task(task.pk, actor=house.actor).status == Status.RUNNING
        answer = house.beat(task)
        assert (answer.desired, answer.archive_wanted) == (Desired.CANCEL, True)
        house.beat(task, graph=GraphState.CANCELLED)
        assert house.again(task).presence == Presence.PRESENT
        house.archived(task)
        task = retention.reclaim(task.pk)
        assert (task.status, task.presence) == (Status.CANCELLED, Presence.RECLAIMED)

    def test_a_supervisor_that_does_not_obey_delays_it_thirty_seconds_at_most(self, house):
        task = house.running()
        retention.delete_task(task.pk, actor=house.actor)
        house.clock.advance(seconds=SNAPSHOT_PATIENCE.total_seconds() - 1)
        retention.reclaim(task.pk)
        assert not destroyed(house)
        house.clock.advance(seconds=1)
        task = retention.reclaim(task.pk)
        assert (task.status, task.presence) == (Status.CANCELLED, Presence.RECLAIMED)
        assert house.kinds(task).count("archive.lost") == 1

    def test_the_contact_sweep_carries_a_waiting_deletion_on(self, house):
        task = house.running()
        retention.delete_task(task.pk, actor=house.actor)
        house.sweep_contact(seconds=35)
        assert house.again(task).presence == Presence.RECLAIMING

    def test_a_pending_task_is_gone_without_any_sandbox(self, house):
        task = house.pending()
        retention.delete_task(task.pk, actor=house.actor)
        task = retention.reclaim(task.pk)
        provisioning.sweep()
        assert house.again(task).presence == Presence.RECLAIMED
        assert not house.world.history

    def test_a_task_whose_creation_is_under_way_is_not_called_gone_too_early(self, house):
        house.world.plan("create", Fault.LOST_REQUEST)
        task = house.starting()
        retention.delete_task(task.pk, actor=house.actor)
        task = retention.reclaim(task.pk)
        assert (task.status, task.presence) == (Status.CANCELLED, Presence.RECLAIMING)
        house.clock.advance(seconds=61)
        house.reclaim_all()
        assert house.again(task).presence == Presence.RECLAIMED

    def test_a_sandbox_whose_creation_was_answered_late_is_removed_with_its_secret(self, house):
        house.world.plan("create", Fault.LOST_RESPONSE)
        task = house.starting()
        retention.delete_task(task.pk, actor=house.actor)
        retention.reclaim(task.pk)
        house.clock.advance(seconds=61)
        house.reclaim_all()
        assert house.again(task).presence == Presence.RECLAIMED
        assert not house.world.boxes

    def test_deleting_twice_is_one_wish_and_one_removal(self, house):
        task = house.archived(house.ended())
        for _ in range(2):
            retention.delete_task(task.pk, actor=house.actor)
            retention.reclaim(task.pk)
        assert destroyed(house) == ["terminate", "clean_up"]
        assert AuditEvent.objects.filter(verb="task.deleted").count() == 1

    def test_deletion_is_audited_with_who_asked(self, house):
        retention.delete_task(house.ended().pk, actor=house.actor)
        assert AuditEvent.objects.get(verb="task.deleted").actor == house.actor.label

    def test_an_operator_may_delete_only_their_own(self, house):
        task = house.ended()
        stranger = Actor(label="user:bob", user_id=999, roles={house.workspace.pk: Role.OPERATOR})
        with pytest.raises(Forbidden):
            retention.delete_task(task.pk, actor=stranger)
        own = Actor(label="user:admin", user_id=task.creator_id, roles={house.workspace.pk: Role.OPERATOR})
        retention.delete_task(task.pk, actor=own)

    def test_a_member_of_another_workspace_does_not_see_it(self, house):
        outsider = Actor(label="user:eve", user_id=998, roles={"wsp_other": Role.ADMIN})
        with pytest.raises(NotVisible):
            retention.delete_task(house.ended().pk, actor=outsider)

    def test_a_snapshot_that_arrives_lets_a_waiting_deletion_go_on(self, house):
        task = house.ended()
        retention.delete_task(task.pk, actor=house.actor)
        assert retention.reclaim(task.pk).presence == Presence.PRESENT
        house.archived(task)
        retention.archive_arrived(task.pk)
        assert retention.reclaim(task.pk).presence == Presence.RECLAIMED

    def test_a_heartbeat_after_the_removal_finds_no_task_to_change(self, house):
        task = house.archived(house.ended())
        last = house.heartbeat(task, round=2)
        retention.delete_task(task.pk, actor=house.actor)
        task = retention.reclaim(task.pk)
        contact.record_heartbeat(task.pk, last)
        assert house.again(task).status == Status.COMPLETED


def test_nothing_but_the_two_paths_ever_destroys(house):
    lost, failed, cancelled = (house.running(task_branch=name) for name in ("lost", "failed", "cancelled"))
    house.world.kill(lost.sandbox_name)
    house.beat(failed, graph=GraphState.FAILED)
    lifecycle.request_cancel(cancelled.pk, actor="user:ada")
    house.beat(cancelled, graph=GraphState.CANCELLED)
    stuck = house.starting(task_branch="stuck")
    house.sweep_contact(seconds=stuck.start_deadline.total_seconds() + 60)
    for _ in range(10):
        observation.sweep()
        provisioning.sweep()
        house.reclaim_all()
        house.clock.advance(seconds=60)
    assert not destroyed(house)
