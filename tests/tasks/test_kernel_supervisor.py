"""What a heartbeat, or its absence, means."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sandbox_supervisor.protocol.messages import Desired
from sandbox_supervisor.protocol.states import GraphState, NodeState
from tasks_app.kernel import REOPEN_MARGIN, SILENCE, Admission, Proof, Want, admit, desired
from tasks_app.states import FailureCode, Health, Presence, Status
from tests.tasks.kernel_facts import (
    CREATING,
    ENDED,
    HEARD,
    LIMITS,
    LONG_AGO,
    NOW,
    PENDING,
    RUNNING,
    STARTING,
    beat,
    claim,
    failure,
    verdict,
)

SECOND = timedelta(seconds=1)
SILENT = replace(RUNNING, last_contact_at=NOW - SILENCE - SECOND)
UNREACHABLE = replace(SILENT, health=Health.UNREACHABLE, unreachable_since=NOW - LIMITS.grace - SECOND)


class TestOrder:
    @pytest.mark.parametrize(
        ("changes", "admission"),
        [
            pytest.param({"beat": 8}, Admission.ADMITTED, id="next beat"),
            pytest.param({"beat": 7}, Admission.REPEATED, id="same beat"),
            pytest.param({"beat": 6}, Admission.LATE, id="older beat"),
            pytest.param({"boot": 2, "beat": 0}, Admission.ADMITTED, id="the supervisor was started again"),
            pytest.param({"boot": 0, "beat": 99}, Admission.LATE, id="an earlier start"),
            pytest.param({"round": 2, "beat": 1}, Admission.ADMITTED, id="next round"),
            pytest.param({"round": 0, "beat": 99}, Admission.LATE, id="an earlier round"),
            pytest.param({"epoch": "e2", "boot": 9}, Admission.OTHER_EPOCH, id="another log"),
            pytest.param({"instance": "x", "boot": 9}, Admission.OTHER_INSTANCE, id="another sandbox"),
        ],
    )
    def test_heartbeats_are_ordered_by_instance_epoch_boot_round_and_beat(self, changes, admission):
        assert admit(RUNNING, beat(**changes)) is admission

    def test_the_first_heartbeat_of_the_bound_instance_is_taken(self):
        assert admit(STARTING, beat(beat=0, boot=0)) is Admission.ADMITTED

    def test_the_first_heartbeat_of_a_stranger_is_not_taken(self):
        assert admit(STARTING, beat(instance="x")) is Admission.OTHER_INSTANCE

    def test_a_fence_of_another_instance_refuses_even_before_the_provider_has_named_one(self):
        unbound = replace(RUNNING, instance="")
        assert admit(unbound, beat(instance="x")) is Admission.OTHER_INSTANCE

    @pytest.mark.parametrize("changes", [{"beat": 6}, {"epoch": "e2"}, {"instance": "x"}])
    def test_a_late_report_is_a_note_and_no_verdict(self, changes):
        said = verdict(RUNNING, report=beat(graph=GraphState.FAILED, **changes))
        assert said.status is None
        assert said.health is None
        assert [note.kind for note in said.notes] == ["task.late_report"]

    def test_a_late_report_is_noted_once_per_kind_and_round(self):
        first, second = (verdict(RUNNING, report=beat(beat=number)).notes[0].key for number in (5, 6))
        assert first == second != verdict(replace(RUNNING, round=2), report=beat(beat=5)).notes[0].key

    def test_a_repeated_heartbeat_is_judged_again_without_a_note(self):
        said = verdict(RUNNING, report=beat(beat=HEARD.beat, graph=GraphState.CANCELLED))
        assert said.status is Status.CANCELLED
        assert not said.notes


class TestReadiness:
    def test_a_bound_sandbox_that_says_ready_is_running(self):
        assert verdict(STARTING, report=beat()).status is Status.RUNNING

    @pytest.mark.parametrize(
        "facts",
        [
            pytest.param(replace(STARTING, endpoint=None), id="endpoint unknown"),
            pytest.param(replace(STARTING, instance=""), id="instance unknown"),
            pytest.param(replace(STARTING, presence=Presence.CREATING), id="not created for all we know"),
            pytest.param(replace(STARTING, cancel_requested_at=NOW), id="cancelled"),
            pytest.param(replace(STARTING, delete_requested_at=NOW), id="deleted"),
            pytest.param(PENDING, id="pending"),
        ],
    )
    def test_readiness_alone_starts_nothing(self, facts):
        assert verdict(facts, report=beat()).status is not Status.RUNNING

    def test_a_sandbox_that_is_not_ready_yet_is_waited_for(self):
        assert verdict(STARTING, report=beat(ready=False)).status is None

    def test_another_specification_than_the_frozen_one_fails(self):
        said = verdict(STARTING, report=beat(specification="sha256:" + "0" * 64))
        assert (said.status, said.failure.code) == (Status.FAILED, FailureCode.INVALID_SPEC)

    @pytest.mark.parametrize(
        ("found", "code"),
        [
            (failure("materialisation_failed"), FailureCode.MATERIALISATION_FAILED),
            (failure("invalid_spec"), FailureCode.INVALID_SPEC),
            (failure("storage_failed"), FailureCode.STORAGE_FAILED),
            (failure("storage_corrupt"), FailureCode.STORAGE_CORRUPT),
            (failure("node_failed"), FailureCode.SANDBOX_FAILED),
            (None, FailureCode.SANDBOX_FAILED),
        ],
    )
    def test_a_supervisor_that_cannot_start_fails_the_task_with_its_reason(self, found, code):
        said = verdict(STARTING, report=beat(ready=False, graph=GraphState.FAILED, failure=found))
        assert said.failure.code is code
        assert said.failure.message

    def test_a_running_task_is_not_started_again(self):
        assert not verdict(RUNNING, report=beat()).status


class TestEnd:
    def end(self, graph: GraphState, task=RUNNING, proof=Proof.NOT_ASKED, **changes) -> Any:
        return verdict(task, report=beat(graph=graph, **changes), proof=proof)

    @pytest.mark.parametrize("proof", [Proof.NOT_ASKED, Proof.HOLDS, Proof.NOTHING])
    def test_success_with_what_the_flow_asks_for_completes(self, proof):
        assert self.end(GraphState.SUCCEEDED, proof=proof).status is Status.COMPLETED

    def test_success_without_the_delivery_proof_is_no_success(self):
        said = self.end(GraphState.SUCCEEDED, proof=Proof.MISSING)
        assert (said.status, said.failure.code) == (Status.FAILED, FailureCode.DELIVERY_FAILED)

    def test_a_failed_graph_keeps_its_own_words(self):
        said = self.end(GraphState.FAILED, failure=failure("exit_code", "pytest ended with 1", node="tests"))
        assert (said.failure.code, said.failure.message) == (FailureCode.NODE_FAILED, "pytest ended with 1")
        assert said.failure.facts["cause"]["node"] == "tests"

    def test_a_failed_graph_without_words_still_says_why(self):
        said = self.end(GraphState.FAILED)
        assert (said.failure.code, said.failure.message) == (FailureCode.NODE_FAILED, "A node failed.")

    def test_a_failed_delivery_is_named_as_such(self):
        said = self.end(GraphState.FAILED, delivery=claim(NodeState.FAILED))
        assert said.failure.code is FailureCode.DELIVERY_FAILED

    def test_a_graph_that_failed_elsewhere_after_a_delivery_is_a_failed_node(self):
        assert self.end(GraphState.FAILED, delivery=claim()).failure.code is FailureCode.NODE_FAILED

    @pytest.mark.parametrize("code", [FailureCode.STORAGE_FAILED, FailureCode.STORAGE_CORRUPT])
    def test_a_broken_store_ends_the_task_whatever_the_graph_says(self, code):
        assert self.end(GraphState.RUNNING, failure=failure(code)).failure.code is code

    def test_a_cancelled_graph_cancels_the_task(self):
        assert self.end(GraphState.CANCELLED).status is Status.CANCELLED

    def test_a_cancelled_graph_cancels_a_task_that_had_not_started_when_that_was_wanted(self):
        asked = replace(STARTING, cancel_requested_at=NOW, heard=HEARD)
        assert self.end(GraphState.CANCELLED, asked).status is Status.CANCELLED

    def test_a_graph_that_is_cancelled_before_the_start_without_a_wish_starts_no_verdict(self):
        assert self.end(GraphState.CANCELLED, replace(STARTING, heard=HEARD), ready=False).status is None

    @pytest.mark.parametrize("graph", [GraphState.RUNNING, GraphState.PAUSED, GraphState.CANCELLING])
    def test_a_graph_that_goes_on_ends_nothing(self, graph):
        assert self.end(graph).status is None

    def test_a_task_that_has_not_started_cannot_complete(self):
        assert self.end(GraphState.SUCCEEDED, STARTING).status is not Status.COMPLETED

    def test_the_word_about_an_earlier_round_does_not_count(self):
        again = replace(RUNNING, round=2, heard=None)
        assert self.end(GraphState.FAILED, again).status is None

    def test_a_round_that_went_by_unheard_is_taken_over_with_its_end(self):
        said = self.end(GraphState.SUCCEEDED, round=3)
        assert (said.status, said.round) == (Status.COMPLETED, 3)

    def test_a_round_that_went_by_unheard_is_taken_over_without_an_end(self):
        said = self.end(GraphState.RUNNING, round=3)
        assert (said.status, said.round) == (None, 3)

    def test_a_cancelled_round_that_went_by_unheard_is_taken_over(self):
        assert self.end(GraphState.CANCELLED, round=3).round == 3

    @pytest.mark.parametrize("word", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
    @pytest.mark.parametrize("graph", [GraphState.SUCCEEDED, GraphState.FAILED, GraphState.CANCELLED])
    def test_the_first_terminal_word_stays(self, word, graph):
        assert self.end(graph, replace(ENDED, status=word)).status is None


class TestReopening:
    def reopen(self, task=ENDED, now=NOW, **changes) -> Any:
        return verdict(task, now=now, report=beat(round=2, **changes))

    def test_a_higher_round_inside_the_window_reopens_the_task(self):
        said = self.reopen()
        assert (said.status, said.reopened, said.round) == (Status.RUNNING, True, 2)

    def test_the_same_round_reopens_nothing(self):
        assert verdict(ENDED, report=beat()).status is None

    @pytest.mark.parametrize(
        ("task", "why"),
        [
            pytest.param(replace(ENDED, delete_requested_at=NOW), "deleted", id="deleted"),
            pytest.param(replace(ENDED, presence=Presence.TERMINATED), "no_sandbox", id="terminated"),
            pytest.param(
                replace(ENDED, status=Status.FAILED, failure=FailureCode.CREDENTIAL_REVOKED),
                "credential_revoked",
                id="revoked",
            ),
            pytest.param(replace(ENDED, retain_until=NOW), "too_late", id="deadline"),
            pytest.param(replace(ENDED, retain_until=None), "too_late", id="no deadline known"),
        ],
    )
    def test_a_rerun_is_refused_with_a_reason(self, task, why):
        said = self.reopen(task)
        assert said.status is not Status.RUNNING
        assert [note.data["why"] for note in said.notes] == [why]

    def test_a_rerun_needs_time_to_start(self):
        assert ENDED.retain_until
        last = ENDED.retain_until - REOPEN_MARGIN
        assert self.reopen(now=last).status is Status.RUNNING
        assert self.reopen(now=last + timedelta(microseconds=1)).status is None

    def test_an_older_life_reopens_nothing(self):
        assert verdict(ENDED, report=beat(round=2, epoch="e0")).status is None

    def test_a_refused_rerun_is_noted_once_per_round(self):
        deleted = replace(ENDED, delete_requested_at=NOW)
        assert self.reopen(deleted).notes[0].key == self.reopen(deleted, beat=9).notes[0].key


class TestContact:
    def watch(self, task, since=LONG_AGO, **seen) -> Any:
        return verdict(task, watching_since=since, **seen)

    def test_a_heartbeat_makes_a_task_reachable(self):
        assert verdict(UNREACHABLE, report=beat()).health is Health.REACHABLE

    def test_a_heartbeat_of_a_reachable_task_changes_nothing(self):
        assert not verdict(RUNNING, report=beat())

    def test_three_missed_beats_are_not_a_suspicion_yet(self):
        said = self.watch(replace(RUNNING, last_contact_at=NOW - SILENCE))
        assert not said
        assert not said.wants

    def test_after_more_the_supervisor_is_asked_before_anything_is_said(self):
        said = self.watch(SILENT)
        assert said.wants == {Want.PROBE}
        assert not said

    def test_a_supervisor_that_does_not_answer_is_unreachable_from_now_on(self):
        said = self.watch(SILENT, probe=False)
        assert (said.health, said.unreachable_since, said.status) == (Health.UNREACHABLE, NOW, None)

    def test_an_answered_probe_counts_as_a_contact(self):
        said = self.watch(SILENT, probe=True)
        assert (said.health, said.contact_at) == (None, NOW)

    def test_an_answered_probe_makes_reachable_again(self):
        said = self.watch(UNREACHABLE, probe=True)
        assert (said.health, said.contact_at, said.status) == (Health.REACHABLE, NOW, None)

    @pytest.mark.parametrize("late", [timedelta(0), timedelta(seconds=-1)])
    def test_the_grace_is_not_over_at_its_edge(self, late):
        waiting = replace(UNREACHABLE, unreachable_since=NOW - LIMITS.grace - late)
        assert not self.watch(waiting, probe=False).status

    def test_before_the_grace_ends_a_task_it_is_asked_once_more(self):
        assert self.watch(UNREACHABLE).wants == {Want.PROBE}

    def test_grace_elapsed_and_no_answer_fails_with_connection_lost(self):
        said = self.watch(UNREACHABLE, probe=False)
        assert (said.status, said.failure.code) == (Status.FAILED, FailureCode.CONNECTION_LOST)

    def test_our_own_outage_restarts_the_silence(self):
        since = NOW - timedelta(seconds=1)
        assert not self.watch(SILENT, since=since)

    def test_our_own_outage_restarts_the_grace(self):
        since = NOW - timedelta(seconds=1)
        said = self.watch(UNREACHABLE, since=since, probe=False)
        assert (said.status, said.unreachable_since) == (None, since)

    def test_an_unreachable_row_without_its_moment_gets_a_whole_grace(self):
        since = NOW - timedelta(days=1)
        said = self.watch(replace(UNREACHABLE, unreachable_since=None), since=since, probe=False)
        assert (said.status, said.unreachable_since) == (None, since)

    @pytest.mark.parametrize(
        "task",
        [
            pytest.param(replace(SILENT, last_contact_at=None), id="never heard: the start deadline judges"),
            pytest.param(replace(SILENT, presence=Presence.LOST), id="lost"),
        ],
    )
    def test_silence_of_what_cannot_speak_is_not_judged(self, task):
        assert not self.watch(task, probe=False)

    def test_a_caller_that_did_not_watch_judges_no_silence(self):
        assert not verdict(UNREACHABLE, probe=False)

    def test_silence_of_an_ended_task_never_changes_its_word(self):
        ended = replace(ENDED, health=Health.UNREACHABLE, last_contact_at=LONG_AGO, unreachable_since=LONG_AGO)
        assert self.watch(ended, since=LONG_AGO - SECOND, probe=False).status is None

    def test_a_starting_task_that_fell_silent_fails_by_grace_too(self):
        starting = replace(UNREACHABLE, status=Status.PROVISIONING, provisioning_at=NOW)
        assert self.watch(starting, probe=False).failure.code is FailureCode.CONNECTION_LOST


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        (CREATING, Desired.HOLD),
        (STARTING, Desired.HOLD),
        (RUNNING, Desired.RUN),
        (replace(STARTING, cancel_requested_at=NOW), Desired.CANCEL),
        (replace(RUNNING, cancel_requested_at=NOW), Desired.CANCEL),
        (replace(RUNNING, delete_requested_at=NOW), Desired.CANCEL),
        (ENDED, Desired.STOP),
        (replace(ENDED, cancel_requested_at=NOW), Desired.STOP),
    ],
)
def test_what_a_supervisor_is_told_follows_from_the_task(task, wanted):
    assert desired(task) is wanted
