"""What a person's wish and the end of the retention mean."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tasks_app.kernel import SKEW_GUARD, SNAPSHOT_PATIENCE
from tasks_app.states import FailureCode, Health, Presence, RemovalReason, Status
from tests.tasks.kernel_facts import CREATING, ENDED, LIMITS, NOW, PENDING, RUNNING, STARTING, beat, verdict

SECOND = timedelta(seconds=1)
DEADLINE = NOW - timedelta(days=1)
DUE_AT = DEADLINE + SKEW_GUARD
EXPIRED = replace(ENDED, retain_until=DEADLINE)


class TestCancel:
    @pytest.mark.parametrize("task", [PENDING, CREATING, STARTING])
    def test_a_task_that_nobody_works_on_is_cancelled_at_once(self, task):
        assert verdict(replace(task, cancel_requested_at=NOW)).status is Status.CANCELLED

    def test_a_supervisor_that_was_heard_must_confirm(self):
        assert verdict(replace(RUNNING, cancel_requested_at=NOW)).status is None
        heard = replace(STARTING, heard=RUNNING.heard, cancel_requested_at=NOW)
        assert verdict(heard).status is None

    def test_a_supervisor_that_is_heard_for_the_first_time_must_confirm_too(self):
        asked = replace(STARTING, cancel_requested_at=NOW)
        assert verdict(asked, report=beat(ready=False)).status is None

    def test_cancelling_removes_nothing(self):
        assert verdict(replace(PENDING, cancel_requested_at=NOW)).removal is None


class TestDelete:
    def test_a_live_task_is_given_time_for_its_snapshot(self):
        said = verdict(replace(RUNNING, delete_requested_at=NOW))
        assert (said.status, said.removal) == (None, None)
        assert said.look_again_at == NOW + SNAPSHOT_PATIENCE

    def test_the_time_for_the_snapshot_ends(self):
        said = verdict(replace(RUNNING, delete_requested_at=NOW - SNAPSHOT_PATIENCE))
        assert said.status is Status.CANCELLED

    @pytest.mark.parametrize("task", [PENDING, CREATING, STARTING])
    def test_a_task_that_nobody_works_on_is_ended_at_once(self, task):
        assert verdict(replace(task, delete_requested_at=NOW)).status is Status.CANCELLED

    def test_an_ended_task_whose_snapshot_is_stored_is_removed_at_once(self):
        said = verdict(replace(ENDED, delete_requested_at=NOW), archive_stored=True)
        assert said.removal is RemovalReason.PERSON_DELETED

    def test_an_ended_task_may_still_send_its_snapshot(self):
        said = verdict(replace(ENDED, delete_requested_at=NOW))
        assert (said.removal, said.look_again_at) == (None, NOW + SNAPSHOT_PATIENCE)

    @pytest.mark.parametrize(
        "task",
        [
            pytest.param(replace(ENDED, delete_requested_at=NOW - SNAPSHOT_PATIENCE), id="time is over"),
            pytest.param(replace(ENDED, delete_requested_at=NOW, health=Health.UNREACHABLE), id="silent"),
            pytest.param(replace(ENDED, delete_requested_at=NOW, presence=Presence.LOST), id="lost"),
            pytest.param(replace(ENDED, delete_requested_at=NOW, presence=Presence.NONE), id="never had one"),
        ],
    )
    def test_a_snapshot_that_cannot_come_is_not_waited_for(self, task):
        assert verdict(task).removal is RemovalReason.PERSON_DELETED

    @pytest.mark.parametrize("presence", [Presence.RECLAIMING, Presence.RECLAIMED])
    def test_what_is_being_removed_is_not_removed_again(self, presence):
        gone = replace(EXPIRED, delete_requested_at=NOW, presence=presence)
        assert not verdict(gone, archive_stored=True, clock_trusted=True)


class TestDeadline:
    def at(self, after: timedelta, task=EXPIRED, *, archived=True, trusted=True) -> Any:
        return verdict(task, now=DEADLINE + after, archive_stored=archived, clock_trusted=trusted)

    @pytest.mark.parametrize("after", [timedelta(days=-1), -SECOND, timedelta(0), SECOND, SKEW_GUARD])
    def test_inside_the_window_and_its_guard_nothing_is_removed(self, after):
        assert not self.at(after)

    def test_past_the_guard_it_is_removed_for_the_one_reason_that_fits(self):
        assert self.at(SKEW_GUARD + timedelta(microseconds=1)).removal is RemovalReason.DEADLINE_PASSED

    @pytest.mark.parametrize("task", [PENDING, CREATING, STARTING, RUNNING])
    def test_a_task_that_has_not_ended_is_kept_for_ever(self, task):
        assert self.at(timedelta(days=3650), task).removal is None

    def test_a_clock_that_is_not_trusted_removes_nothing(self):
        assert not self.at(timedelta(days=3650), trusted=False)

    def test_a_missing_archive_delays_but_not_for_ever(self):
        edge = SKEW_GUARD + LIMITS.archive_patience
        assert self.at(edge, archived=False).removal is None
        assert self.at(edge, archived=False).look_again_at == DEADLINE + edge
        assert self.at(edge + SECOND, archived=False).removal is RemovalReason.DEADLINE_PASSED

    @pytest.mark.parametrize(
        ("after", "kind"), [(SKEW_GUARD + SECOND, "archive.missing"), (timedelta(days=99), "archive.lost")]
    )
    def test_a_missing_archive_is_told_while_it_is_waited_for_and_when_it_is_given_up(self, after, kind):
        assert [note.kind for note in self.at(after, archived=False).notes] == [kind]
        assert not self.at(after).notes

    def test_a_rerun_delays_but_not_for_ever(self):
        rerun = replace(EXPIRED, status=Status.RUNNING)
        edge = SKEW_GUARD + LIMITS.rerun_patience
        assert self.at(edge, rerun).status is None
        assert self.at(edge, rerun).removal is None
        assert self.at(edge + SECOND, rerun).failure.code is FailureCode.RETENTION_ENDED

    @pytest.mark.parametrize("presence", [Presence.LOST, Presence.TERMINATED, Presence.NONE])
    def test_what_is_left_of_a_gone_sandbox_is_removed_at_the_deadline_too(self, presence):
        gone = replace(EXPIRED, presence=presence)
        assert self.at(SKEW_GUARD + SECOND, gone).removal is RemovalReason.DEADLINE_PASSED
