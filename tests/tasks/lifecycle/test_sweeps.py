"""Sweeps: twice, late, in parallel, by hand; leases, ticks and the schedule."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from config.schedule import BEAT_SCHEDULE
from tasks_app.errors import Refused
from tasks_app.kernel.facts import SILENCE
from tasks_app.models import Lease, Task, TaskContact, TaskEvent
from tasks_app.services import clock as task_clock
from tasks_app.services import contact, leases, lifecycle, observation, probe, sweeps
from tasks_app.states import Health, Presence, Status
from tasks_app.timetable import TIMETABLE
from tests.tasks.lifecycle.house import START, Clock

TTL = timedelta(seconds=30)


@pytest.mark.django_db
class TestLeases:
    def test_one_holder_at_a_time(self):
        token = leases.take("x", now=START, ttl=TTL) or ""
        assert token
        assert leases.take("x", now=START, ttl=TTL) is None
        leases.release("x", token)
        assert leases.take("x", now=START, ttl=TTL)

    def test_a_lease_of_a_dead_holder_runs_out(self):
        leases.take("x", now=START, ttl=TTL)
        assert leases.take("x", now=START + TTL - timedelta(seconds=1), ttl=TTL) is None
        assert leases.take("x", now=START + TTL, ttl=TTL)

    def test_a_sleeper_cannot_renew_what_another_holds(self):
        sleeper = leases.take("x", now=START, ttl=TTL) or ""
        leases.take("x", now=START + TTL, ttl=TTL)
        assert not leases.renew("x", sleeper, now=START + TTL, ttl=TTL)
        assert not leases.holds("x", sleeper, now=START + TTL)

    def test_a_sleeper_cannot_give_back_what_another_holds(self):
        sleeper = leases.take("x", now=START, ttl=TTL) or ""
        current = leases.take("x", now=START + TTL, ttl=TTL) or ""
        leases.release("x", sleeper)
        assert leases.holds("x", current, now=START + TTL)

    def test_a_renewed_lease_lasts_longer(self):
        token = leases.take("x", now=START, ttl=TTL) or ""
        assert leases.renew("x", token, now=START + TTL / 2, ttl=TTL)
        assert leases.take("x", now=START + TTL, ttl=TTL) is None

    @pytest.mark.parametrize(
        ("step", "unbroken"),
        [
            (timedelta(seconds=5), True),
            (timedelta(seconds=15), True),
            (timedelta(seconds=16), False),
            (timedelta(days=3), False),
            (timedelta(seconds=-1), False),
        ],
    )
    def test_watching_is_unbroken_while_no_tick_is_missed(self, step, unbroken):
        patience = timedelta(seconds=15)
        assert leases.tick("w", now=START, patience=patience) == START
        now = START + step
        assert leases.tick("w", now=now, patience=patience) == (START if unbroken else now)


def many_running(house, count: int) -> None:
    """Make so many running tasks: one as ever, the others as rows like it. Only the first one's sandbox is there."""
    first = house.running()
    tasks = []
    for number in range(1, count):
        task = Task.objects.get(pk=first.pk)
        task.pk, task.task_branch, task.sandbox_name = Task._meta.pk.get_default(), f"b{number}", f"cs-{number}"
        task.sandbox = {**first.sandbox, "name": task.sandbox_name}
        tasks.append(task)
    Task.objects.bulk_create(tasks)
    heard = first.contact.last_contact_at
    TaskContact.objects.bulk_create(TaskContact(task=task, last_contact_at=heard) for task in tasks)


@pytest.mark.slow
class TestManySandboxes:
    def test_each_of_more_than_five_hundred_is_looked_at_in_one_pass(self, house):
        many_running(house, 501)
        assert observation.sweep() == 501
        assert Task.objects.filter(presence=Presence.LOST).count() == 500
        assert observation.sweep() == 1

    def test_the_silence_of_each_of_more_than_two_hundred_is_judged_in_one_pass(self, house):
        many_running(house, 201)
        house.sweep_contact(seconds=SILENCE.total_seconds() + 5)
        assert set(Task.objects.values_list("health", flat=True)) == {Health.UNREACHABLE}


class TestSweeps:
    def run_all(self):
        for name in sweeps.SWEEPS:
            sweeps.run(name)

    def test_running_everything_many_times_gives_the_same_outcome(self, house):
        tasks = [
            house.pending(task_branch="a"),
            house.running(task_branch="b"),
            house.archived(house.ended(task_branch="c")),
        ]
        self.run_all()
        settled = [house.again(task).rev for task in tasks]
        for _ in range(5):
            self.run_all()
        assert [house.again(task).rev for task in tasks] == settled

    def test_an_hour_without_sweeps_is_caught_up_in_one_pass(self, house):
        waiting, gone = house.pending(task_branch="a"), house.running(task_branch="b")
        house.world.kill(gone.sandbox_name)
        house.clock.advance(hours=1)
        self.run_all()
        assert house.again(waiting).presence == Presence.PRESENT
        assert house.again(gone).presence == Presence.LOST

    def test_a_sweep_that_another_worker_runs_is_left_to_it(self, house):
        task = house.pending()
        leases.take("sweeping:provision", now=house.clock(), ttl=timedelta(minutes=1))
        sweeps.run("provision")
        assert house.again(task).status == Status.PENDING
        house.clock.advance(minutes=2)
        sweeps.run("provision")
        assert house.again(task).presence == Presence.PRESENT

    def test_an_impossible_row_is_set_aside_and_the_others_go_on(self, house):
        broken, sound = house.running(task_branch="a"), house.running(task_branch="b")
        type(broken).objects.filter(pk=broken.pk).update(endpoint={"x": 1})
        house.world.kill(sound.sandbox_name)
        self.run_all()
        assert house.again(sound).presence == Presence.LOST
        assert house.again(broken).quarantine
        rev = house.again(broken).rev
        house.clock.advance(days=9)
        self.run_all()
        assert house.again(broken).rev == rev

    def test_many_black_holes_do_not_stop_the_watch(self, house, monkeypatch):
        tasks = [house.running(task_branch=f"b{number}") for number in range(5)]

        def slow(*_):
            house.clock.advance(seconds=6)
            return False

        monkeypatch.setattr(probe, "answers", slow)
        for _ in range(200):
            contact.sweep()
            house.clock.advance(seconds=5)
        assert {house.again(task).status for task in tasks} == {Status.FAILED}

    def test_a_repaired_row_comes_back(self, house):
        task = house.running()
        lifecycle.quarantine(task.pk, "odd")
        house.world.kill(task.sandbox_name)
        self.run_all()
        assert house.again(task).presence == Presence.PRESENT
        lifecycle.unquarantine(task.pk)
        self.run_all()
        assert house.again(task).presence == Presence.LOST

    def test_history_is_published_once_and_in_order(self, house):
        house.running()
        sweeps.run("outbox")
        assert not TaskEvent.objects.unpublished().exists()
        published = list(TaskEvent.objects.values_list("pk", "published_at"))
        sweeps.run("outbox")
        assert list(TaskEvent.objects.values_list("pk", "published_at")) == published

    def test_the_age_of_each_sweep_is_known(self, house):
        assert all(age.late for age in sweeps.ages())
        self.run_all()
        assert not any(age.late for age in sweeps.ages())
        house.clock.advance(seconds=21)
        assert {age.name for age in sweeps.ages() if age.late} == {"contact", "outbox", "withdraw"}

    def test_an_unknown_sweep_is_refused_by_name(self):
        with pytest.raises(Refused, match="reclaim"):
            sweeps.run("cron")


def test_every_sweep_is_in_the_timetable_with_its_reason():
    assert set(sweeps.SWEEPS) == set(TIMETABLE)
    assert all(entry.reason and entry.period > timedelta(0) for entry in TIMETABLE.values())


def test_beat_sends_each_sweep_and_drops_what_waited_for_a_whole_period():
    assert {entry["args"] for entry in BEAT_SCHEDULE.values()} == {(name,) for name in TIMETABLE}
    for entry in BEAT_SCHEDULE.values():
        assert entry["task"] == "tasks.sweep"
        assert entry["options"]["expires"] == entry["schedule"] == TIMETABLE[entry["args"][0]].period.total_seconds()


def test_every_job_that_is_sent_by_name_is_registered():
    from celery import current_app

    names = {f"tasks.{name}" for name in ("provision", "withdraw_secret", "reclaim", "cancel", "deliver", "sweep")}
    assert names <= set(current_app.tasks)


class TestClock:
    @pytest.mark.django_db
    def test_the_database_clock_is_utc_and_goes_on_inside_a_transaction(self):
        first, second = task_clock.database_now(), task_clock.database_now()
        assert first.utcoffset() == timedelta(0)
        assert first <= second

    def test_a_steady_clock_is_trusted(self):
        clock = Clock(START)
        guard = task_clock.JumpGuard(monotonic=clock.monotonic)
        assert all(guard.trusted(clock.advance(minutes=5)) for _ in range(9))

    @pytest.mark.parametrize("jump", [timedelta(minutes=11), timedelta(minutes=-11), timedelta(days=400)])
    def test_a_jump_is_noticed_once_and_then_confirmed(self, jump):
        clock = Clock(START)
        guard = task_clock.JumpGuard(monotonic=clock.monotonic)
        assert guard.trusted(clock())
        clock.moment += jump
        assert not guard.trusted(clock())
        assert guard.trusted(clock.advance(minutes=1))

    def test_ten_minutes_are_no_jump(self):
        clock = Clock(START)
        guard = task_clock.JumpGuard(monotonic=clock.monotonic)
        guard.trusted(clock())
        clock.jump(minutes=10)
        assert guard.trusted(clock())


class TestCommands:
    def test_a_sweep_can_be_run_by_hand(self, house):
        task = house.pending()
        call_command("sweep", "provision")
        assert house.again(task).presence == Presence.PRESENT

    def test_sweeps_are_listed_with_their_reason(self, house):
        out = StringIO()
        call_command("sweep", stdout=out)
        assert all(entry.reason in out.getvalue() for entry in TIMETABLE.values())

    def test_an_unknown_sweep_is_a_usage_error(self):
        with pytest.raises(CommandError):
            call_command("sweep", "cron")

    def test_the_story_of_a_task_is_told_from_all_tables_without_a_write(self, house):
        task = house.archived(house.ended())
        before, leases_before = house.again(task).rev, Lease.objects.count()
        out = StringIO()
        call_command("explain_task", task.pk, stdout=out)
        told = out.getvalue()
        assert all(word in told for word in (task.pk, "completed", "task.created", "snapshot of round 1", "verdict"))
        assert (house.again(task).rev, Lease.objects.count()) == (before, leases_before)

    def test_the_story_of_an_impossible_row_is_told_too(self, house):
        task = house.running()
        type(task).objects.filter(pk=task.pk).update(endpoint={"x": 1})
        lifecycle.quarantine(task.pk, "odd endpoint")
        out = StringIO()
        call_command("explain_task", task.pk, stdout=out)
        assert "QUARANTINED: odd endpoint" in out.getvalue()

    @pytest.mark.django_db
    def test_a_task_that_is_not_there_is_an_error(self):
        with pytest.raises(CommandError):
            call_command("explain_task", "tsk_none")
