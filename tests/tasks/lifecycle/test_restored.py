"""A database restored from a backup destroys nothing and delivers nothing, and goes on after a person's word."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox_providers.scripted import Fault
from tasks_app.errors import Stale
from tasks_app.kernel import SKEW_GUARD, SNAPSHOT_PATIENCE, Decision, Standing
from tasks_app.models import IdempotencyRecord
from tasks_app.services import (
    contact,
    deployment,
    leftovers,
    lifecycle,
    observation,
    restored,
    retention,
    story,
    sweeps,
)
from tasks_app.states import Presence, RemovalReason, Status
from tests.tasks.lifecycle.restoring import Backup, fall_behind, standing
from tests.tasks.lifecycle.test_retention import at_deadline, destroyed

PAST = SKEW_GUARD + timedelta(seconds=1)


@pytest.fixture(autouse=True)
def state(settings, tmp_path: Path) -> None:
    settings.STATE_DIR = tmp_path / "state"


@pytest.fixture
def begun(house):
    """A house whose deployment has taken some steps."""
    for _ in range(3):
        deployment.advance()
    return house


@pytest.fixture
def backup(open_house, tmp_path: Path) -> Iterator[SimpleNamespace]:
    made: list[Backup] = []

    def take() -> Backup:
        made.append(Backup(tmp_path))
        return made[-1]

    yield SimpleNamespace(take=take)
    for each in made:
        each.forget()


class TestSafeMode:
    """The sandbox stands whatever the row says; everything that undoes nothing goes on."""

    def test_an_expired_task_keeps_its_sandbox_until_a_person_confirms(self, begun):
        task = begun.archived(begun.ended())
        fall_behind()
        assert at_deadline(begun, task, PAST).presence == Presence.PRESENT
        begun.reclaim_all()
        assert not destroyed(begun)
        deployment.confirm(by=begun.actor)
        begun.reclaim_all()
        assert begun.again(task).presence == Presence.RECLAIMED
        assert destroyed(begun) == ["terminate", "clean_up"]

    def test_a_removal_that_was_intended_is_not_carried_out(self, begun):
        task = begun.archived(begun.ended())
        begun.world.plan("clean_up", Fault.LOST_REQUEST)
        retention.delete_task(task.pk, actor=begun.actor)
        retention.reclaim(task.pk)
        assert begun.again(task).presence == Presence.RECLAIMING
        done = len(destroyed(begun))
        fall_behind()
        begun.clock.advance(hours=2)
        begun.reclaim_all()
        assert len(destroyed(begun)) == done
        deployment.confirm(by=begun.actor)
        begun.reclaim_all()
        assert begun.again(task).presence == Presence.RECLAIMED

    def test_a_delete_is_taken_ends_the_task_and_removes_nothing_yet(self, begun):
        task = begun.running()
        fall_behind()
        retention.delete_task(task.pk, actor=begun.actor)
        begun.clock.advance(seconds=SNAPSHOT_PATIENCE.total_seconds() + 1)
        begun.sweep_contact()
        retention.reclaim(task.pk)
        task = begun.again(task)
        assert (task.status, task.presence) == (Status.CANCELLED, Presence.PRESENT)
        assert not destroyed(begun)
        deployment.confirm(by=begun.actor)
        begun.sweep_contact()
        retention.reclaim(task.pk)
        assert begun.again(task).presence == Presence.RECLAIMED

    def test_a_rerun_is_not_stopped_at_the_deadline(self, begun):
        task = begun.archived(begun.ended())
        begun.beat(task, round=2)
        fall_behind()
        late = at_deadline(begun, task, SKEW_GUARD + task.rerun_patience + timedelta(seconds=1))
        assert late.status == Status.RUNNING

    def test_an_intent_that_was_decided_just_before_is_not_committed(self, begun):
        task = begun.archived(begun.ended())
        fall_behind()
        with pytest.raises(Stale):
            lifecycle.apply(task, Decision(removal=RemovalReason.DEADLINE_PASSED), now=begun.clock())
        assert begun.again(task).presence == Presence.PRESENT

    def test_tasks_are_made_run_watched_and_rerun(self, begun):
        ended = begun.archived(begun.ended(task_branch="a"))
        fall_behind()
        assert begun.running(task_branch="b").status == Status.RUNNING
        begun.beat(ended, round=2)
        assert begun.again(ended).status == Status.RUNNING
        begun.world.kill(ended.sandbox_name)
        observation.sweep()
        assert begun.again(ended).presence == Presence.LOST

    def test_nothing_is_tidied_away(self, begun):
        begun.create(key="once")
        fall_behind()
        begun.clock.moment += leftovers.KEY_LIFE * 2
        sweeps.run("leftovers")
        assert IdempotencyRecord.objects.exists()

    def test_every_sweep_runs_through(self, begun):
        begun.ended(task_branch="a")
        begun.running(task_branch="b")
        fall_behind()
        for name in sweeps.SWEEPS:
            sweeps.run(name)
        assert not [age for age in sweeps.ages() if age.late]

    def test_a_file_that_cannot_be_read_stops_no_heartbeat_and_every_removal(self, begun):
        task = begun.archived(begun.ended())
        deployment.place().write_bytes(b"nonsense")
        begun.beat(task)
        contact.sweep()
        assert at_deadline(begun, task, PAST).presence == Presence.PRESENT

    def test_the_story_of_a_task_says_it(self, begun):
        task = begun.ended()
        fall_behind()
        assert any(line.startswith("SAFE MODE: The database is older") for line in story.explain(task.pk))


def add_stranger(house, like) -> None:
    """Let the provider have a sandbox of which no row tells."""
    box = house.box(like)
    house.world.boxes["stranger"] = replace(box, spec=replace(box.spec, name="stranger", key="x"), uid="u")


class TestOrphans:
    def test_what_no_task_knows_and_what_a_task_calls_removed_is_listed(self, begun):
        removed, _kept = (begun.ended(task_branch=branch) for branch in "ab")
        add_stranger(begun, removed)
        type(removed).objects.filter(pk=removed.pk).update(
            presence=Presence.RECLAIMED, reclaimed_at=begun.clock(), removal_reason=RemovalReason.DEADLINE_PASSED
        )
        found = {orphan.name: orphan.why for orphan in restored.orphans()}
        said = f"removed already, says {removed.pk}"
        assert found == {"stranger": "no task of this database", removed.sandbox_name: said}

    def test_a_kept_sandbox_of_an_ended_task_is_no_orphan(self, begun):
        begun.ended()
        assert restored.orphans() == []

    def test_they_are_never_removed(self, begun):
        add_stranger(begun, begun.ended())
        fall_behind()
        deployment.confirm(by=begun.actor)
        begun.clock.advance(days=300)
        for _ in range(3):
            begun.clock.advance(minutes=1)
            for name in sweeps.SWEEPS:
                sweeps.run(name)
        assert "stranger" in begun.world.boxes

    def test_what_goes_on_after_a_confirmation_is_named(self, begun):
        task = begun.archived(begun.ended())
        assert restored.waiting() == restored.Waiting(removals=(), deliveries=())
        begun.clock.moment = task.retain_until + PAST
        assert restored.waiting().removals == (task.pk,)


@pytest.mark.django_db(transaction=True)
def test_a_backup_that_was_really_restored_deletes_nothing_before_and_everything_due_after(open_house, backup):
    """From the first step to the end, with a copy of the real database."""
    house = open_house
    expired = house.archived(house.ended(task_branch="a"))
    deployment.advance()
    copy = backup.take()
    for _ in range(2):
        deployment.advance()
    later = house.running(task_branch="b")
    copy.restore()
    assert standing() is Standing.DATABASE_BEHIND
    assert not type(later).objects.filter(pk=later.pk).exists()
    assert [orphan.name for orphan in restored.orphans()] == [later.sandbox_name]

    for _ in range(2):
        assert at_deadline(house, expired, PAST).presence == Presence.PRESENT
        for name in sweeps.SWEEPS:
            sweeps.run(name)
        house.clock.advance(minutes=5)
    assert not destroyed(house)

    deployment.confirm(by=house.actor)
    house.reclaim_all()
    house.reclaim_all()
    assert house.again(expired).presence == Presence.RECLAIMED
    assert list(house.world.boxes) == [later.sandbox_name]


@pytest.mark.django_db(transaction=True)
def test_a_backup_is_noticed_again_each_time_it_is_restored(open_house, backup):
    deployment.advance()
    copy = backup.take()
    deployment.advance()
    for _ in range(2):
        copy.restore()
        assert not deployment.look().sound
        deployment.confirm(by=open_house.actor)
        assert deployment.look().sound
