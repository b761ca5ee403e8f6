"""What the two epochs of a deployment mean, and what is not decided while they do not agree."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tasks_app.kernel import SKEW_GUARD, SNAPSHOT_PATIENCE, SOUND, Epoch, Epochs, Standing, Want, judge_epochs
from tasks_app.states import FailureCode, Presence, RemovalReason, Status
from tests.tasks.kernel_facts import ENDED, LIMITS, NOW, RUNNING, verdict

SECOND = timedelta(seconds=1)
EXPIRED = replace(ENDED, retain_until=NOW - timedelta(days=1))
DELETED = replace(ENDED, delete_requested_at=NOW)
OVERDUE = replace(RUNNING, retain_until=NOW - SKEW_GUARD - LIMITS.rerun_patience - SECOND)


def epoch(number: int, history: str = "a") -> Epoch:
    return Epoch(history=history, number=number)


@pytest.mark.parametrize(
    ("database", "kept", "standing"),
    [
        (None, None, Standing.BEGINS),
        (0, None, Standing.BEGINS),
        (0, 0, Standing.AGREES),
        (7, 7, Standing.AGREES),
        (8, 7, Standing.AGREES),
        (9, 7, Standing.KEPT_BEHIND),
        (6, 7, Standing.DATABASE_BEHIND),
        (0, 7, Standing.DATABASE_BEHIND),
        (1, None, Standing.MISSING),
        (None, 0, Standing.OTHER_HISTORY),
        (None, 7, Standing.OTHER_HISTORY),
    ],
)
def test_the_epochs_of_one_history_are_compared_by_number(database, kept, standing):
    both = Epochs(database=None if database is None else epoch(database), kept=None if kept is None else epoch(kept))
    assert judge_epochs(both) is standing


@pytest.mark.parametrize("number", [6, 7, 8, 9])
def test_the_epochs_of_two_histories_never_agree(number):
    assert judge_epochs(Epochs(database=epoch(number), kept=epoch(7, "b"))) is Standing.OTHER_HISTORY


@pytest.mark.parametrize("database", [None, epoch(0), epoch(7)])
def test_an_epoch_that_cannot_be_read_is_never_taken_for_a_first_start(database):
    assert judge_epochs(Epochs(database=database, trouble="Permission denied")) is Standing.UNREADABLE


def test_only_a_beginning_and_agreement_are_sound():
    assert {Standing.BEGINS, Standing.AGREES} == SOUND


IRREVOCABLE: list[Any] = [
    pytest.param(EXPIRED, {"clock_trusted": True, "archive_stored": True}, id="deadline"),
    pytest.param(DELETED, {"archive_stored": True}, id="deleted"),
    pytest.param(OVERDUE, {"clock_trusted": True}, id="rerun at the deadline"),
]


@pytest.mark.parametrize(("task", "seen"), IRREVOCABLE)
def test_what_cannot_be_undone_is_said_when_the_epochs_agree(task, seen):
    said = verdict(task, epochs_agree=True, **seen)
    assert (said.removal is not None) or said.failure.code is FailureCode.RETENTION_ENDED
    assert not said.wants


@pytest.mark.parametrize(("task", "seen"), IRREVOCABLE)
def test_before_it_is_said_the_epochs_are_asked_for(task, seen):
    said = verdict(task, epochs_agree=None, **seen)
    assert not said
    assert said.wants == {Want.EPOCHS}


@pytest.mark.parametrize(("task", "seen"), IRREVOCABLE)
def test_it_is_not_said_while_they_do_not_agree(task, seen):
    said = verdict(task, epochs_agree=False, **seen)
    assert not said
    assert not said.wants


def test_what_waits_goes_on_waiting_without_asking():
    said = verdict(DELETED, epochs_agree=None)
    assert (said.look_again_at, said.wants) == (NOW + SNAPSHOT_PATIENCE, frozenset())


@pytest.mark.parametrize("agree", [None, False])
def test_a_removal_that_is_under_way_asks_nothing(agree):
    assert not verdict(replace(DELETED, presence=Presence.RECLAIMING), epochs_agree=agree).wants


def test_a_task_that_a_person_deletes_ends_also_while_they_do_not_agree():
    late = replace(RUNNING, delete_requested_at=NOW - SNAPSHOT_PATIENCE)
    said = verdict(late, epochs_agree=False)
    assert (said.status, said.removal) == (Status.CANCELLED, None)


def test_the_reason_of_a_removal_is_the_same_as_ever():
    said = verdict(EXPIRED, epochs_agree=True, clock_trusted=True, archive_stored=True)
    assert said.removal is RemovalReason.DEADLINE_PASSED
