"""Several workers and members at once, each on a connection of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from policy_app.services.publish import current_revision, publish_revision
from sandbox_providers.scripted import Fault
from sandbox_supervisor.protocol.states import GraphState
from tasks_app.errors import KeyReused, QuotaReached
from tasks_app.models import Quota, Task
from tasks_app.services import contact, lifecycle, observation, provisioning, retention, sweeps
from tasks_app.states import Presence, Status

WORKERS = 6


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Start all together; give what each returned or raised."""
    gate = threading.Barrier(len(works))

    def carry_out(work: Callable[[], Any]) -> Any:
        gate.wait(timeout=60)
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the outcome of a racer is what the test looks at
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(timeout=100) for future in [pool.submit(carry_out, work) for work in works]]


def creates(house) -> int:
    return sum(done.verb == "create" and done.effect for done in house.world.history)


def test_two_creates_with_one_key_make_one_task_and_one_sandbox(open_house):
    outcomes = at_once(*[lambda: open_house.create(key="once") for _ in range(WORKERS)])
    assert len({outcome.task.pk for outcome in outcomes}) == 1
    assert sum(not outcome.replayed for outcome in outcomes) == 1
    assert Quota.objects.get(scope="deployment").used == 1
    at_once(*[lambda: provisioning.provision(outcomes[0].task.pk) for _ in range(WORKERS)])
    provisioning.sweep()
    assert len(open_house.world.boxes) == 1


def test_of_two_bodies_under_one_key_one_is_refused(open_house):
    outcomes = at_once(
        lambda: open_house.create(key="once", title="One"), lambda: open_house.create(key="once", title="Two")
    )
    assert [type(outcome) for outcome in outcomes].count(KeyReused) == 1
    assert Task.objects.count() == 1


def test_the_quota_is_never_exceeded(open_house):
    limit = current_revision().live_task_quota
    open_house.pending()
    Quota.objects.update(used=limit - 2)
    outcomes = at_once(*[open_house.create for _ in range(WORKERS)])
    assert sum(isinstance(outcome, QuotaReached) for outcome in outcomes) == WORKERS - 2
    assert set(Quota.objects.values_list("used", flat=True)) == {limit}


def test_many_workers_provision_one_task_once(open_house):
    task = open_house.pending()
    at_once(*[lambda: provisioning.provision(task.pk) for _ in range(WORKERS)])
    assert creates(open_house) == 1
    assert open_house.again(task).presence == Presence.PRESENT
    assert open_house.kinds(task).count("sandbox.present") == 1


def test_many_workers_find_one_loss_once(open_house):
    task = open_house.running()
    open_house.world.kill(task.sandbox_name)
    at_once(*[lambda: observation.observe(task.pk) for _ in range(WORKERS)])
    assert open_house.kinds(task).count("task.failed") == 1
    assert open_house.kinds(task).count("sandbox.lost") == 1
    assert Quota.objects.get(scope="deployment").used == 0


def test_a_completion_and_a_loss_at_once_leave_one_terminal_word(open_house):
    task = open_house.running()
    last = open_house.heartbeat(task, graph=GraphState.SUCCEEDED)
    open_house.world.kill(task.sandbox_name)
    at_once(lambda: contact.record_heartbeat(task.pk, last), lambda: observation.observe(task.pk))
    words = [kind for kind in open_house.kinds(task) if kind in {"task.completed", "task.failed"}]
    assert len(words) == 1
    assert open_house.again(task).status == words[0].removeprefix("task.")


def test_heartbeats_at_once_keep_the_newest(open_house):
    task = open_house.running()
    beats = [open_house.heartbeat(task) for _ in range(WORKERS)]
    at_once(*[lambda beat=beat: contact.record_heartbeat(task.pk, beat) for beat in beats])
    assert open_house.again(task).contact.beat == max(beat.beat for beat in beats)
    assert open_house.again(task).status == Status.RUNNING


def test_many_workers_remove_one_sandbox_with_one_record(open_house):
    task = open_house.archived(open_house.ended())
    lifecycle.request_delete(task.pk, actor="user:ada")
    at_once(*[lambda: retention.reclaim(task.pk) for _ in range(WORKERS)])
    assert open_house.again(task).presence == Presence.RECLAIMED
    assert open_house.kinds(task).count("sandbox.reclaimed") == 1
    assert [done.verb for done in open_house.world.history].count("clean_up") == 1


def test_deleting_while_the_create_is_on_its_way_leaves_nothing_behind(open_house):
    open_house.world.plan("create", Fault.LATE)
    task = open_house.pending()

    def delete() -> None:
        while not open_house.world.boxes:
            threading.Event().wait(0.005)
        retention.delete_task(task.pk, actor=open_house.actor)
        retention.reclaim(task.pk)
        open_house.world.release()

    at_once(lambda: provisioning.provision(task.pk), delete)
    open_house.clock.advance(seconds=120)
    for _ in range(3):
        provisioning.sweep()
        retention.sweep()
        open_house.clock.advance(seconds=61)
    assert open_house.again(task).presence == Presence.RECLAIMED
    assert not open_house.world.boxes
    assert creates(open_house) == 1


def test_sweeps_of_two_workers_at_once_do_each_thing_once(open_house):
    tasks = [open_house.pending() for _ in range(4)]
    at_once(*[lambda: sweeps.run("provision") for _ in range(2)], *[provisioning.sweep for _ in range(2)])
    assert creates(open_house) == len(tasks)
    assert {open_house.again(task).presence for task in tasks} == {Presence.PRESENT}


@pytest.mark.parametrize("turn", range(3))
def test_publishing_a_policy_during_a_create_tears_no_copy(open_house, turn):
    now = current_revision()
    values = type(now.values)(
        **{
            **{n: getattr(now.values, n) for n in now.values.__slots__},
            "memory_limit": 2**32 + turn,
            "workspace_size": 2**32 + turn,
        }
    )

    def publish() -> None:
        publish_revision(
            based_on=now.number, message="New.", author=open_house.actor, values=values, now=open_house.clock()
        )

    outcomes = at_once(open_house.create, publish, open_house.create)
    for created in (outcomes[0], outcomes[2]):
        task = open_house.again(created.task)
        revision = task.policy_revision
        assert task.memory_limit == revision.memory_limit == task.policy["memory_limit"]
        assert task.policy["workspace_size"] == revision.workspace_size
