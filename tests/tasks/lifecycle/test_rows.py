"""What the database itself refuses about a task's rows."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, models, transaction

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app.models import Archive, Delivery, IdempotencyRecord, Quota, Task, TaskEvent, TaskSnapshot
from tasks_app.models.task import FROZEN
from tasks_app.refusals import REFUSALS
from tasks_app.states import FailureCode, Presence, Status


def refused(**changes):
    """Try to write columns past every service, and expect the database to refuse."""

    def attempt(task):
        with pytest.raises(IntegrityError), transaction.atomic():
            Task.objects.filter(pk=task.pk).update(**changes)

    return attempt


def other_value(field: Any, value):
    if isinstance(field, models.ForeignKey | models.IntegerField | models.DecimalField):
        return value + 1 if not isinstance(value, str) else f"{value[:-1]}{'y' if value.endswith('x') else 'x'}"
    if isinstance(field, models.BooleanField):
        return not value
    if isinstance(field, models.DurationField | models.DateTimeField):
        return value + timedelta(seconds=1)
    if isinstance(field, models.BinaryField):
        return bytes(value) + b" "
    if isinstance(field, models.JSONField):
        return {"changed": True}
    return f"{value[:-1]}{'y' if value.endswith('x') else 'x'}"


@pytest.mark.parametrize("column", FROZEN)
def test_a_frozen_column_never_changes_after_the_insert(house, column):
    task = house.pending()
    field = next(field for field in Task._meta.concrete_fields if field.attname == column)
    with pytest.raises(IntegrityError, match="frozen"), transaction.atomic():
        Task.objects.filter(pk=task.pk).update(**{column: other_value(field, getattr(task, column))})


def test_every_column_is_either_frozen_or_named_as_one_that_lives():
    living = {
        "id", "title", "rev", "status", "presence", "health", "secret", "round", "failure_code", "failure", "sandbox",
        "instance", "endpoint", "absent_since", "absent_reads", "trouble", "removal_reason", "removal_remaining",
        "quota_held", "quarantine", "attempts", "look_again_at", "provisioning_at", "creating_at", "provisioned_at",
        "running_at", "secret_withdrawn_at", "cancel_requested_at", "delete_requested_at", "first_terminal_at",
        "retain_until", "lost_at", "reclaimed_at",
    }  # fmt: skip
    assert {field.attname for field in Task._meta.concrete_fields} == living | set(FROZEN)


def test_saving_a_whole_row_that_froze_nothing_new_is_fine(house):
    task = house.again(house.pending())
    task.title = "Another title"
    task.save()
    assert house.again(task).title == "Another title"


@pytest.mark.parametrize("column", ["first_terminal_at", "retain_until"])
@pytest.mark.parametrize("by", [timedelta(seconds=-1), timedelta(seconds=1), None])
def test_the_end_and_the_deadline_never_change_once_set(house, column, by):
    task = house.ended()
    value = None if by is None else getattr(task, column) + by
    with pytest.raises(IntegrityError), transaction.atomic():
        Task.objects.filter(pk=task.pk).update(**{column: value})


def test_writing_the_same_deadline_again_is_no_change(house):
    task = house.ended()
    assert Task.objects.filter(pk=task.pk).update(
        retain_until=task.retain_until, first_terminal_at=task.first_terminal_at
    )


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"status": "finished"}, id="unknown status"),
        pytest.param({"presence": "gone"}, id="unknown presence"),
        pytest.param({"health": "fine"}, id="unknown health"),
        pytest.param({"secret": "leaked"}, id="unknown secret"),
        pytest.param({"failure_code": "bad_luck"}, id="unknown failure"),
        pytest.param({"status": Status.COMPLETED}, id="ended without a deadline"),
        pytest.param({"status": Status.RUNNING}, id="running without a beginning"),
        pytest.param({"presence": Presence.RECLAIMED}, id="reclaimed without a moment"),
        pytest.param({"presence": Presence.RECLAIMING}, id="removal without a reason"),
        pytest.param({"presence": Presence.RECLAIMING, "removal_reason": "orphaned"}, id="a third reason"),
        pytest.param(
            {"presence": Presence.RECLAIMING, "removal_reason": "deadline_passed"}, id="removal of a live task"
        ),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(house, changes):
    refused(**changes)(house.pending())


def test_a_failed_task_says_why(house):
    task = house.ended()
    refused(status=Status.FAILED)(task)
    assert Task.objects.filter(pk=task.pk).update(status=Status.FAILED, failure_code=FailureCode.NODE_FAILED)


def test_a_deadline_lies_not_before_the_end(house):
    task = house.running()
    now = house.clock()
    refused(first_terminal_at=now, retain_until=now - timedelta(seconds=1))(task)


def test_two_tasks_never_have_one_branch_or_one_sandbox_name(house):
    first, second = house.pending(), house.pending()
    copy = {**Task.objects.filter(pk=first.pk).values()[0], "id": "tsk_copy"}
    for column, value in (("sandbox_name", "cs-other"), ("task_branch", "other")):
        with pytest.raises(IntegrityError), transaction.atomic():
            Task.objects.create(**{**copy, column: value})
    assert second.task_branch != first.task_branch


class TestDeliveries:
    def row(self, house, task, **changes):
        plain = {
            "node": "deliver",
            "generation": 1,
            "key": f"{task.pk}:deliver:1:push",
            "branch": task.task_branch,
            "base_commit": task.base_commit,
            "created_at": house.clock(),
        }
        return Delivery.objects.create(task=task, **{**plain, **changes})

    def test_one_delivery_per_task_node_generation_and_kind(self, house):
        task = house.running()
        self.row(house, task)
        with pytest.raises(IntegrityError), transaction.atomic():
            self.row(house, task, key="another key")
        assert self.row(house, task, generation=2, key="generation 2").pk

    def test_one_delivery_per_key(self, house):
        task = house.running()
        self.row(house, task)
        with pytest.raises(IntegrityError), transaction.atomic():
            self.row(house, task, generation=2)

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"state": DeliveryState.DELIVERED}, id="delivered without commit"),
            pytest.param({"state": DeliveryState.CONFLICT}, id="settled without a moment"),
            pytest.param({"state": "pushed"}, id="unknown state"),
            pytest.param({"kind": "force"}, id="unknown kind"),
            pytest.param({"bundle_size": 10, "bundle_received": 11}, id="more than its size"),
        ],
    )
    def test_a_delivery_that_makes_no_sense_is_refused(self, house, changes):
        with pytest.raises(IntegrityError), transaction.atomic():
            self.row(house, house.running(), **changes)

    def test_an_unsettled_delivery_has_no_moment_of_settling(self, house):
        with pytest.raises(IntegrityError), transaction.atomic():
            self.row(house, house.running(), settled_at=house.clock())


def test_an_archive_is_not_stored_before_it_is_whole(house):
    task = house.running()
    with pytest.raises(IntegrityError), transaction.atomic():
        Archive.objects.create(
            task=task,
            digest="d",
            size=10,
            received=9,
            state="stored",
            created_at=house.clock(),
            stored_at=house.clock(),
        )


def test_one_snapshot_per_task_and_round(house):
    task = house.archived(house.ended())
    with pytest.raises(IntegrityError), transaction.atomic():
        house.archived(task)
    assert house.archived(task, round_=2)
    latest = TaskSnapshot.objects.latest_of(task.pk)
    assert latest
    assert latest.round == 2


def test_a_fact_with_a_key_is_told_once(house):
    task = house.pending()
    fact = {"task": task, "at": house.clock(), "kind": "task.expiring", "actor": "x", "rev": 1, "key": "24h"}
    TaskEvent.objects.create(**fact)
    with pytest.raises(IntegrityError), transaction.atomic():
        TaskEvent.objects.create(**fact)


def test_one_answer_per_member_route_and_key(house):
    house.create(key="once")
    row = IdempotencyRecord.objects.values().get()
    with pytest.raises(IntegrityError), transaction.atomic():
        IdempotencyRecord.objects.create(**{**row, "id": None})


def test_a_counter_is_never_negative(house):
    house.pending()
    with pytest.raises(IntegrityError), transaction.atomic():
        Quota.objects.update(used=-1)


@pytest.mark.django_db
def test_the_triggers_that_are_written_down_are_in_the_database():
    sql = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
        "postgresql": "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(sql)
        there = {row[0] for row in cursor.fetchall()}
    assert {refusal.name for refusal in REFUSALS} <= there
