"""What the provider says about sandboxes that stand, and what it means for their tasks."""

import pytest

from sandbox_providers.contract import State
from sandbox_providers.scripted import Fault
from sandbox_supervisor.protocol.messages import Desired
from sandbox_supervisor.protocol.states import GraphState
from tasks_app.errors import TokenEnded
from tasks_app.models import Quota
from tasks_app.services import observation, tokens
from tasks_app.states import FailureCode, Presence, Status


def held(house) -> int:
    return Quota.objects.get(scope="deployment").used


def look(house, task, *, times: int = 1):
    for _ in range(times):
        observation.sweep()
        house.clock.advance(seconds=10)
    return house.again(task)


def test_a_healthy_sandbox_is_observed_without_a_write(house):
    task = house.running()
    assert look(house, task, times=3).rev == task.rev


def test_a_killed_sandbox_is_lost_at_once_and_fails_the_task_once(house):
    task = house.running()
    house.world.kill(task.sandbox_name)
    task = look(house, task, times=4)
    assert (task.status, task.failure_code, task.presence) == (
        Status.FAILED,
        FailureCode.SANDBOX_LOST,
        Presence.LOST,
    )
    assert house.kinds(task).count("task.failed") == house.kinds(task).count("sandbox.lost") == 1
    assert task.lost_at is not None


def test_stale_reads_that_find_nothing_are_a_suspicion_until_three_of_them(house):
    task = house.running()
    house.world.plan("observe", Fault.SAYS_ABSENT, Fault.SAYS_ABSENT)
    task = look(house, task, times=2)
    assert (task.status, task.absent_reads) == (Status.RUNNING, 2)
    task = look(house, task)
    assert (task.status, task.absent_reads, task.absent_since) == (Status.RUNNING, 0, None)


def test_three_reads_over_twenty_seconds_that_find_nothing_are_a_loss(house):
    task = house.running()
    house.world.plan("observe", *[Fault.SAYS_ABSENT] * 3)
    task = look(house, task, times=3)
    assert (task.status, task.presence) == (Status.FAILED, Presence.LOST)


def test_many_reads_at_one_moment_are_no_loss(house):
    task = house.running()
    house.world.plan("observe", *[Fault.SAYS_ABSENT] * 9)
    for _ in range(9):
        observation.sweep()
    assert house.again(task).status == Status.RUNNING


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.THROTTLED, Fault.DENIED])
def test_an_error_of_the_provider_is_never_absence(house, fault):
    task = house.running()
    house.world.plan("observe", *[fault] * 20)
    assert look(house, task, times=20).rev == task.rev


def test_a_provider_that_is_down_for_days_loses_nothing(house):
    task = house.running()
    house.world.down = True
    look(house, task, times=3)
    house.clock.advance(days=9)
    task = look(house, task, times=3)
    assert (task.status, task.presence) == (Status.RUNNING, Presence.PRESENT)


def test_a_replaced_instance_is_lost_and_its_supervisor_is_told_to_stop(house):
    task = house.running()
    house.world.replace(task.sandbox_name)
    task = look(house, task)
    assert (task.status, task.presence) == (Status.FAILED, Presence.LOST)
    assert house.beat(task, instance="instance-2").desired is Desired.STOP
    with pytest.raises(TokenEnded):
        tokens.verify_task_token(tokens.task_token(task), tokens.Scope.DELIVER)


def test_a_deleted_sandbox_is_lost(house):
    task = house.running()
    house.world.delete(task.sandbox_name)
    assert look(house, task).presence == Presence.LOST


def test_a_sandbox_whose_name_went_to_a_stranger_is_lost_and_the_stranger_left_alone(house):
    task = house.running()
    house.world.reuse_name(task.sandbox_name)
    assert look(house, task).presence == Presence.LOST
    assert house.box(task).running


def test_a_failed_sandbox_keeps_its_evidence_and_stays(house):
    task = house.starting()
    house.world.change(task.sandbox_name, State.FAILED, reason="materialisation_failed", cause="no such commit")
    house.box(task).failure = {"code": "baseline_missing", "stage": "clone"}
    task = look(house, task)
    assert (task.failure_code, task.presence) == (FailureCode.MATERIALISATION_FAILED, Presence.PRESENT)
    assert task.failure["facts"]["evidence"]["failure"]["code"] == "baseline_missing"


def test_losing_the_sandbox_of_an_ended_task_frees_its_capacity_and_keeps_its_word(house):
    task = house.ended()
    assert held(house) == 1
    house.world.kill(task.sandbox_name)
    task = look(house, task, times=2)
    assert (task.status, task.presence, held(house)) == (Status.COMPLETED, Presence.LOST, 0)


def test_capacity_is_held_while_an_ended_sandbox_is_kept(house):
    house.ended(GraphState.FAILED)
    assert held(house) == 1


def test_a_sandbox_that_exits_by_itself_fails_the_task(house):
    task = house.running()
    house.world.exit(task.sandbox_name, 0)
    task = look(house, task)
    assert (task.status, task.presence) == (Status.FAILED, Presence.TERMINATED)


def test_observing_never_calls_anything_that_changes_a_sandbox(house):
    task = house.running()
    house.world.kill(task.sandbox_name)
    before = len(house.world.history)
    look(house, task, times=5)
    assert {done.verb for done in house.world.history[before:]} <= {"observe"}


def test_one_row_that_cannot_be_looked_at_does_not_keep_the_sweep_from_the_others(house):
    broken, sound = house.running(task_branch="a"), house.running(task_branch="b")
    type(broken).objects.filter(pk=broken.pk).update(sandbox={"odd": True})
    house.world.kill(sound.sandbox_name)
    observation.sweep()
    assert house.again(sound).presence == Presence.LOST
    assert house.again(broken).status == Status.RUNNING
