"""What a provider's answers mean."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sandbox_providers.contract import State
from tasks_app.kernel import ABSENT_FOR, ABSENT_READS, Creation, Suspicion
from tasks_app.states import FailureCode, Presence, Status
from tests.tasks.kernel_facts import (
    CREATING,
    ENDED,
    ENDPOINT,
    LIMITS,
    LONG_AGO,
    NOW,
    PENDING,
    RUNNING,
    STARTING,
    beat,
    sight,
    verdict,
)

SECOND = timedelta(seconds=1)


def suspected(reads: int, since: timedelta):
    return replace(RUNNING, absent_reads=reads, absent_since=NOW - since)


class TestPresence:
    def see(self, state: State, task=RUNNING, **changes) -> Any:
        return verdict(task, observation=sight(state, **changes))

    def test_one_absence_is_a_suspicion(self):
        said = self.see(State.ABSENT)
        assert (said.presence, said.status) == (None, None)
        assert said.suspicion == Suspicion(since=NOW, reads=1)

    def test_many_absences_in_a_short_time_are_still_a_suspicion(self):
        said = self.see(State.ABSENT, suspected(ABSENT_READS, ABSENT_FOR - SECOND))
        assert said.presence is None

    def test_two_absences_over_a_long_time_are_still_a_suspicion(self):
        assert self.see(State.ABSENT, suspected(1, timedelta(hours=1))).presence is None

    def test_three_absences_over_twenty_seconds_are_a_loss(self):
        said = self.see(State.ABSENT, suspected(ABSENT_READS - 1, ABSENT_FOR))
        assert (said.presence, said.status) == (Presence.LOST, Status.FAILED)
        assert said.failure.code is FailureCode.SANDBOX_LOST

    @pytest.mark.parametrize("state", [State.READY, State.PENDING, State.UNREADY])
    def test_being_seen_ends_the_suspicion(self, state):
        assert self.see(state, suspected(2, ABSENT_FOR)).suspicion == Suspicion()

    def test_a_healthy_sandbox_is_nothing_to_write(self):
        assert not self.see(State.READY)

    @pytest.mark.parametrize("state", [State.UNREACHABLE, State.SUSPENDED, State.TERMINATING, State.UNREADY])
    def test_an_unclear_state_is_no_verdict(self, state):
        assert not self.see(state)

    def test_an_authoritative_loss_counts_at_once(self):
        said = self.see(State.LOST, reason="sandbox_lost", cause="rebooted")
        assert (said.presence, said.failure.code) == (Presence.LOST, FailureCode.SANDBOX_LOST)
        assert said.failure.message == "Its sandbox is lost: rebooted"

    @pytest.mark.parametrize("state", [State.LOST, State.TERMINATED, State.FAILED])
    def test_a_guess_of_the_provider_counts_for_nothing(self, state):
        assert not self.see(state, authoritative=False)

    def test_a_replaced_instance_is_lost_at_once(self):
        said = self.see(State.READY, instance="boot:9:9")
        assert (said.presence, said.status) == (Presence.LOST, Status.FAILED)

    def test_a_sandbox_that_was_ended_from_outside_fails_the_task(self):
        said = self.see(State.TERMINATED)
        assert (said.presence, said.status) == (Presence.TERMINATED, Status.FAILED)

    def test_a_sandbox_that_failed_inside_stays_readable(self):
        said = self.see(State.FAILED, reason="container_restarted", cause="runner restarted")
        assert (said.presence, said.failure.code) == (None, FailureCode.CONTAINER_RESTARTED)

    def test_a_materialisation_failure_keeps_its_evidence(self):
        evidence = {"failure": {"code": "clone_failed", "stage": "clone", "item": "repository"}}
        said = self.see(State.FAILED, STARTING, reason="materialisation_failed", evidence=evidence)
        assert said.failure.code is FailureCode.MATERIALISATION_FAILED
        assert said.failure.facts["evidence"] == evidence
        assert said.failure.message

    def test_a_reason_that_does_not_fit_the_status_becomes_the_general_one(self):
        said = self.see(State.FAILED, RUNNING, reason="materialisation_failed")
        assert said.failure.code is FailureCode.SANDBOX_FAILED

    @pytest.mark.parametrize(
        ("state", "presence"), [(State.LOST, Presence.LOST), (State.TERMINATED, Presence.TERMINATED)]
    )
    def test_losing_the_sandbox_of_an_ended_task_changes_presence_not_status(self, state, presence):
        said = self.see(state, ENDED)
        assert (said.presence, said.status) == (presence, None)

    def test_a_failure_inside_an_ended_sandbox_changes_nothing(self):
        assert not self.see(State.FAILED, ENDED)

    def test_the_first_sight_binds_the_instance_and_the_endpoint(self):
        said = self.see(State.READY, replace(STARTING, instance="", endpoint=None))
        assert (said.instance, said.endpoint) == ("boot:1:2", ENDPOINT)

    def test_an_observation_without_instance_binds_none(self):
        assert self.see(State.PENDING, replace(STARTING, instance=""), instance="").instance is None

    def test_an_endpoint_that_is_withheld_does_not_forget_the_known_one(self):
        assert not self.see(State.UNREADY, endpoint=None)

    def test_a_moved_endpoint_is_learnt(self):
        moved = replace(ENDPOINT, port=4712)
        assert self.see(State.READY, endpoint=moved).endpoint == moved

    @pytest.mark.parametrize(
        "presence",
        [Presence.NONE, Presence.CREATING, Presence.LOST, Presence.TERMINATED, Presence.RECLAIMING, Presence.RECLAIMED],
    )
    def test_only_a_present_sandbox_can_be_lost(self, presence):
        said = verdict(replace(ENDED, presence=presence), observation=sight(State.LOST))
        assert said.presence is None

    def test_an_end_that_was_reported_together_with_a_loss_holds(self):
        from sandbox_supervisor.protocol.states import GraphState

        said = verdict(RUNNING, observation=sight(State.LOST), report=beat(graph=GraphState.SUCCEEDED))
        assert (said.status, said.presence, said.failure) == (Status.COMPLETED, Presence.LOST, None)


class TestCreation:
    def test_a_created_sandbox_is_present(self):
        assert verdict(CREATING, creation=Creation.CREATED).presence is Presence.PRESENT

    def test_a_sandbox_that_came_after_the_end_is_present_all_the_same(self):
        cancelled = replace(ENDED, status=Status.CANCELLED, presence=Presence.CREATING)
        said = verdict(cancelled, creation=Creation.CREATED)
        assert (said.presence, said.status) == (Presence.PRESENT, None)

    def test_a_sandbox_that_came_after_the_decision_to_remove_revives_nothing(self):
        removed = replace(ENDED, presence=Presence.RECLAIMING)
        assert verdict(removed, creation=Creation.CREATED).presence is None

    def test_a_capability_that_vanished_fails_before_the_sandbox(self):
        said = verdict(PENDING, creation=Creation.GAP, cause="driver opencode is gone")
        assert said.failure.code is FailureCode.CAPABILITY_GAP

    def test_what_can_never_be_created_fails_with_the_providers_words(self):
        said = verdict(CREATING, creation=Creation.INVALID, cause="no such image")
        assert (said.failure.code, said.failure.message) == (FailureCode.INVALID_SPEC, "no such image")

    @pytest.mark.parametrize("creation", [Creation.NO_ROOM, Creation.UNKNOWN])
    def test_no_room_or_no_answer_is_tried_again_later(self, creation):
        said = verdict(CREATING, creation=creation, cause="busy")
        assert said.status is None
        assert said.presence is None
        assert said.look_again_at > NOW
        assert said.trouble.endswith("busy")

    @pytest.mark.parametrize("creation", [Creation.INVALID, Creation.NO_ROOM, Creation.UNKNOWN, Creation.GAP])
    def test_the_answer_to_an_older_try_changes_nothing_once_it_stands(self, creation):
        assert not verdict(STARTING, creation=creation)
        assert verdict(ENDED, creation=creation).status is None


class TestStartDeadline:
    def late(self, by: timedelta, task=CREATING, since=LONG_AGO) -> Any:
        started = replace(task, provisioning_at=NOW - LIMITS.start_deadline - by)
        return verdict(started, watching_since=since)

    def test_the_edge_is_still_in_time(self):
        assert not self.late(timedelta(0))

    @pytest.mark.parametrize("task", [CREATING, STARTING])
    def test_past_the_edge_the_task_fails(self, task):
        assert self.late(SECOND, task).failure.code is FailureCode.START_DEADLINE

    def test_a_lack_of_room_is_named_as_the_reason(self):
        waiting = replace(CREATING, trouble=f"{Creation.NO_ROOM}: no node has 4 GiB")
        said = self.late(SECOND, waiting)
        assert said.failure.code is FailureCode.CAPACITY
        assert "no node has 4 GiB" in said.failure.message

    def test_time_in_which_nobody_watched_does_not_count(self):
        assert not self.late(timedelta(hours=9), since=NOW - SECOND)

    def test_a_caller_that_did_not_watch_judges_no_start(self):
        assert not self.late(timedelta(hours=9), since=None)

    def test_a_running_task_has_no_start_deadline(self):
        assert not self.late(timedelta(hours=9), replace(RUNNING, last_contact_at=NOW))

    def test_a_row_without_its_beginning_is_not_judged(self):
        assert not verdict(replace(CREATING, provisioning_at=None), watching_since=LONG_AGO)
