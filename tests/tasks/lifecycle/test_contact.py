"""Heartbeats, silence, grace, and outages of our own."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.messages import DeliveryProof, DeliveryState, Desired, Failure, Head
from sandbox_supervisor.protocol.states import FailureClass, GraphState, NodeState
from tasks_app.models import Delivery
from tasks_app.services import contact, lifecycle
from tasks_app.states import FailureCode, Health, Presence, Status

COMMIT = "c" * 40


def deliver(house, task, state=DeliveryState.DELIVERED, commit=COMMIT, **changes):
    settled = None if state in {DeliveryState.RECEIVED, DeliveryState.QUEUED} else house.clock()
    return Delivery.objects.create(
        task=task,
        node="deliver",
        generation=1,
        key=f"{task.pk}:deliver:1:push",
        state=state,
        branch=task.task_branch,
        base_commit=task.base_commit,
        commit=commit,
        created_at=house.clock(),
        settled_at=settled,
        **changes,
    )


def claim(**changes) -> DeliveryProof:
    return replace(DeliveryProof(node="deliver", generation=1, state=NodeState.SUCCEEDED, commit=COMMIT), **changes)


class TestHeartbeats:
    def test_a_heartbeat_changes_the_contact_and_not_the_task(self, house):
        task = house.running()
        house.clock.advance(seconds=10)
        house.beat(task, attention=2, head=Head(seq=77, chain="d" * 64), usage={"input_tokens": 5.0}, disk_used=9)
        now = house.again(task)
        assert now.rev == task.rev
        assert (now.contact.head_seq, now.contact.attention, now.contact.disk_used) == (77, 2, 9)
        assert now.contact.last_contact_at == house.clock()
        assert now.contact.usage == {"input_tokens": 5.0}

    def test_an_older_heartbeat_moves_nothing_back(self, house):
        task = house.running()
        newest = house.heartbeat(task, head=Head(seq=50, chain="e" * 64))
        contact.record_heartbeat(task.pk, newest)
        contact.record_heartbeat(task.pk, replace(newest, beat=newest.beat - 1, head=Head(seq=40, chain="d" * 64)))
        task = house.again(task)
        assert (task.contact.head_seq, task.contact.beat) == (50, newest.beat)
        assert house.kinds(task).count("task.late_report") == 1

    def test_a_flood_of_old_heartbeats_leaves_one_note(self, house):
        task = house.running()
        old = replace(house.heartbeat(task), beat=0)
        revs = set()
        for _ in range(5):
            contact.record_heartbeat(task.pk, old)
            revs.add(house.again(task).rev)
        assert len(revs) == 1
        assert house.kinds(task).count("task.late_report") == 1

    def test_a_repeated_heartbeat_is_answered_the_same(self, house):
        task = house.running()
        once = house.heartbeat(task)
        first, second = contact.record_heartbeat(task.pk, once), contact.record_heartbeat(task.pk, once)
        assert (first.desired, first.round) == (second.desired, second.round) == (Desired.RUN, 1)

    @pytest.mark.parametrize("changes", [{"epoch": "epoch-2"}, {"instance": "instance-9"}])
    def test_a_stranger_is_told_to_stop_and_ends_nothing(self, house, changes):
        task = house.running()
        answer = house.beat(task, graph=GraphState.FAILED, boot=9, **changes)
        assert answer.desired is Desired.STOP
        assert house.again(task).status == Status.RUNNING
        assert house.again(task).contact.epoch == "epoch-1"

    def test_a_supervisor_that_was_started_again_goes_on(self, house):
        task = house.running()
        answer = house.beat(task, boot=2, beat=0)
        assert answer.desired is Desired.RUN
        assert house.again(task).contact.boot == 2

    @pytest.mark.parametrize(
        "changes",
        [
            {"boot": -1},
            {"round": 2**40},
            {"beat": 2**63},
            {"head": Head(seq=-5, chain="")},
            {"epoch": ""},
            {"instance": ""},
            {"epoch": "e" * 500},
            {"instance": "i" * 500},
            {"specification": "s" * 500},
        ],
    )
    def test_numbers_and_texts_that_cannot_be_are_refused(self, house, changes):
        task = house.running()
        with pytest.raises(Malformed):
            house.beat(task, **changes)
        assert house.again(task).rev == task.rev

    def test_endless_readiness_and_usage_are_cut(self, house):
        task = house.running()
        house.beat(
            task, readiness={f"{n}" * 300: "x" * 9000 for n in range(900)}, usage={f"u{n}": 1.0 for n in range(900)}
        )
        kept = house.again(task).contact
        assert len(kept.readiness) <= contact.MOST_WORDS
        assert len(kept.usage) <= contact.MOST_WORDS
        assert max(len(word) for word in kept.readiness.values()) <= 300

    def test_settled_deliveries_are_named_in_the_answer(self, house):
        task = house.running(flow_version_id=house.delivery_flow.pk)
        row = deliver(house, task)
        assert house.beat(task).deliveries == (row.pk,)
        house.clock.advance(minutes=10)
        house.beat(task)
        house.clock.advance(minutes=2)
        assert house.beat(task).deliveries == ()

    def test_the_answer_acknowledges_the_head_and_tells_the_time(self, house):
        task = house.running()
        answer = house.beat(task, head=Head(seq=9, chain="f" * 64))
        assert answer.acknowledged == Head(seq=9, chain="f" * 64)
        assert answer.server_time.startswith("2030-01-01T12:00:00.000")

    def test_a_quarantined_task_is_held(self, house):
        task = house.running()
        lifecycle.quarantine(task.pk, "looked at")
        assert house.beat(task).desired in {Desired.RUN, Desired.HOLD}
        assert house.again(task).rev == task.rev

    def test_a_row_that_makes_no_sense_is_held_and_set_aside(self, house):
        task = house.running()
        type(task).objects.filter(pk=task.pk).update(endpoint={"nonsense": 1})
        assert house.beat(task).desired is Desired.HOLD
        assert "nonsense" in house.again(task).quarantine


class TestEnds:
    def test_success_completes_and_starts_the_window_once(self, house):
        task = house.ended()
        assert (task.status, task.first_terminal_at) == (Status.COMPLETED, house.clock())
        assert task.retain_until == house.clock() + task.max_retention
        house.clock.advance(hours=1)
        house.beat(task, graph=GraphState.SUCCEEDED)
        assert house.again(task).retain_until == task.retain_until

    def test_the_window_counts_from_the_first_observation_not_from_the_end(self, house):
        task = house.running()
        house.clock.advance(hours=6)
        house.beat(task, graph=GraphState.SUCCEEDED)
        assert house.again(task).first_terminal_at == house.clock()

    def test_an_ended_task_is_asked_for_its_snapshot_until_it_is_there(self, house):
        task = house.ended()
        answer = house.beat(task, graph=GraphState.SUCCEEDED)
        assert (answer.desired, answer.archive_wanted) == (Desired.STOP, True)
        house.archived(task)
        assert not house.beat(task, graph=GraphState.SUCCEEDED).archive_wanted

    def test_a_running_task_is_not_asked_for_a_snapshot(self, house):
        assert not house.beat(house.running()).archive_wanted

    def test_a_failed_node_fails_the_task_with_its_words(self, house):
        task = house.running()
        reason = Failure(failure_class=FailureClass.CHECK_FAILED, code="exit_code", message="pytest ended with 1")
        house.beat(task, graph=GraphState.FAILED, failure=reason)
        task = house.again(task)
        assert (task.status, task.failure_code) == (Status.FAILED, FailureCode.NODE_FAILED)
        assert task.failure["message"] == "pytest ended with 1"

    def test_the_first_terminal_word_wins_over_a_later_one(self, house):
        task = house.ended()
        house.world.kill(task.sandbox_name)
        from tasks_app.services import observation

        observation.observe(task.pk)
        task = house.again(task)
        assert (task.status, task.presence) == (Status.COMPLETED, Presence.LOST)

    def test_success_with_a_delivery_completes(self, house):
        task = house.running(flow_version_id=house.delivery_flow.pk)
        deliver(house, task)
        house.beat(task, graph=GraphState.SUCCEEDED, delivery=claim())
        assert house.again(task).status == Status.COMPLETED

    def test_success_with_nothing_to_deliver_completes(self, house):
        task = house.running(flow_version_id=house.delivery_flow.pk)
        deliver(house, task, DeliveryState.NOTHING, commit="")
        house.beat(task, graph=GraphState.SUCCEEDED, delivery=claim(commit=None, nothing=True))
        assert house.again(task).status == Status.COMPLETED

    def test_a_skipped_delivery_node_asks_for_no_proof(self, house):
        task = house.running(flow_version_id=house.delivery_flow.pk)
        house.beat(task, graph=GraphState.SUCCEEDED, delivery=claim(state=NodeState.SKIPPED, commit=None))
        assert house.again(task).status == Status.COMPLETED

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            pytest.param(None, claim(), id="no row"),
            pytest.param({"state": DeliveryState.QUEUED}, claim(), id="not pushed yet"),
            pytest.param({"state": DeliveryState.CONFLICT}, claim(), id="conflict"),
            pytest.param({"commit": "d" * 40}, claim(), id="another commit"),
            pytest.param({"wants_change_request": True}, claim(), id="no change request"),
            pytest.param({}, claim(generation=2), id="another generation"),
            pytest.param({}, claim(commit=None, nothing=True), id="claims nothing, but something was delivered"),
            pytest.param({}, None, id="claims nothing at all"),
        ],
    )
    def test_success_without_proof_is_a_failed_delivery(self, house, row, said):
        task = house.running(flow_version_id=house.delivery_flow.pk)
        if row is not None:
            deliver(house, task, **row)
        house.beat(task, graph=GraphState.SUCCEEDED, delivery=said)
        task = house.again(task)
        assert (task.status, task.failure_code) == (Status.FAILED, FailureCode.DELIVERY_FAILED)


class TestCancel:
    def test_a_running_task_is_cancelled_when_its_supervisor_confirms(self, house):
        task = lifecycle.request_cancel(house.running().pk, actor="user:ada")
        assert task.status == Status.RUNNING
        assert house.beat(task, graph=GraphState.CANCELLING).desired is Desired.CANCEL
        house.beat(task, graph=GraphState.CANCELLED)
        task = house.again(task)
        assert (task.status, task.presence) == (Status.CANCELLED, Presence.PRESENT)
        assert task.retain_until == house.clock() + task.max_retention

    def test_cancelling_twice_is_one_wish(self, house):
        task = house.running()
        first = lifecycle.request_cancel(task.pk, actor="user:ada")
        house.clock.advance(seconds=5)
        assert lifecycle.request_cancel(task.pk, actor="user:bob").cancel_requested_at == first.cancel_requested_at
        assert house.kinds(task).count("task.cancel_requested") == 1

    def test_an_ended_task_cannot_be_cancelled(self, house):
        from tasks_app.errors import Refused

        with pytest.raises(Refused) as refused:
            lifecycle.request_cancel(house.ended().pk, actor="user:ada")
        assert refused.value.code == "already_ended"

    def test_a_success_that_came_first_stays_although_a_cancel_was_asked_for(self, house):
        task = lifecycle.request_cancel(house.running().pk, actor="user:ada")
        house.beat(task, graph=GraphState.SUCCEEDED)
        assert house.again(task).status == Status.COMPLETED


class TestRerun:
    def test_a_higher_round_reopens_and_moves_no_deadline(self, house):
        task = house.ended(GraphState.FAILED)
        deadline = task.retain_until
        house.clock.advance(hours=1)
        answer = house.beat(task, round=2)
        task = house.again(task)
        assert (answer.desired, answer.round) == (Desired.RUN, 2)
        assert (task.status, task.round, task.failure_code) == (Status.RUNNING, 2, "")
        house.beat(task, round=2, graph=GraphState.SUCCEEDED)
        task = house.again(task)
        assert (task.status, task.retain_until) == (Status.COMPLETED, deadline)

    def test_a_rerun_that_ended_between_two_heartbeats_is_taken_at_once(self, house):
        task = house.ended(GraphState.FAILED)
        house.beat(task, round=2, graph=GraphState.SUCCEEDED)
        task = house.again(task)
        assert (task.status, task.round) == (Status.COMPLETED, 2)
        assert "task.reopened" in house.kinds(task)

    def test_a_rerun_of_a_cancelled_task_is_not_cancelled_again(self, house):
        task = lifecycle.request_cancel(house.running().pk, actor="user:ada")
        house.beat(task, graph=GraphState.CANCELLED)
        assert house.beat(task, round=2).desired is Desired.RUN

    def test_a_rerun_asks_for_its_own_snapshot(self, house):
        task = house.archived(house.ended())
        house.beat(task, round=2, graph=GraphState.SUCCEEDED)
        assert house.beat(task, round=2, graph=GraphState.SUCCEEDED).archive_wanted

    def test_a_rerun_just_before_the_deadline_is_refused_and_stopped(self, house):
        task = house.ended()
        house.clock.moment = task.retain_until - timedelta(seconds=30)
        answer = house.beat(task, round=2)
        assert (answer.desired, house.again(task).status) == (Desired.STOP, Status.COMPLETED)
        assert "task.reopen_refused" in house.kinds(task)

    def test_a_late_heartbeat_of_the_first_round_does_not_end_the_rerun(self, house):
        task = house.ended(GraphState.FAILED)
        house.beat(task, round=2)
        house.beat(task, round=1, graph=GraphState.FAILED)
        assert house.again(task).status == Status.RUNNING


class TestSilence:
    def test_silence_makes_unreachable_and_leaves_the_status_alone(self, house):
        task = house.running()
        house.sweep_contact(seconds=40)
        task = house.again(task)
        assert (task.health, task.status) == (Health.UNREACHABLE, Status.RUNNING)
        assert task.contact.unreachable_since is not None

    def test_a_disconnection_shorter_than_the_grace_leaves_no_trace_but_the_history(self, house):
        task = house.running()
        house.sweep_contact(seconds=task.connection_grace.total_seconds() - 5)
        house.beat(task)
        now = house.again(task)
        assert (now.health, now.status, now.presence) == (Health.REACHABLE, Status.RUNNING, Presence.PRESENT)
        assert now.contact.unreachable_since is None
        assert [kind for kind in house.kinds(task) if kind in {"task.unreachable", "task.recovered"}] == [
            "task.unreachable",
            "task.recovered",
        ]

    def test_longer_than_the_grace_fails_exactly_once(self, house):
        task = house.running()
        house.sweep_contact(seconds=task.connection_grace.total_seconds() + 60)
        house.sweep_contact(seconds=60)
        task = house.again(task)
        assert (task.status, task.failure_code) == (Status.FAILED, FailureCode.CONNECTION_LOST)
        assert house.kinds(task).count("task.failed") == 1
        assert house.box(task).running

    def test_a_partition_that_heals_after_the_failure_revives_nothing(self, house):
        task = house.running()
        house.sweep_contact(seconds=task.connection_grace.total_seconds() + 60)
        answer = house.beat(task)
        assert (answer.desired, house.again(task).status) == (Desired.STOP, Status.FAILED)
        assert house.again(task).health == Health.REACHABLE

    def test_an_outage_of_our_own_fails_nothing_however_long(self, house):
        task = house.running()
        contact.sweep()
        house.clock.advance(days=7)
        contact.sweep()
        task = house.again(task)
        assert (task.status, task.health) == (Status.RUNNING, Health.REACHABLE)

    def test_an_outage_of_our_own_restarts_the_grace_of_the_unreachable(self, house):
        task = house.running()
        house.sweep_contact(seconds=task.connection_grace.total_seconds())
        assert house.again(task).health == Health.UNREACHABLE
        house.clock.advance(hours=5)
        back_at = house.clock()
        contact.sweep()
        task = house.again(task)
        assert (task.status, task.contact.unreachable_since) == (Status.RUNNING, back_at)
        house.sweep_contact(seconds=task.connection_grace.total_seconds() + 10)
        assert house.again(task).status == Status.FAILED

    def test_an_outage_of_our_own_restarts_the_start_deadline(self, house):
        task = house.starting()
        contact.sweep()
        house.clock.advance(days=1)
        contact.sweep()
        assert house.again(task).status == Status.PROVISIONING

    def test_a_question_that_waits_for_days_ends_nothing(self, house):
        task = house.running()
        for _ in range(50):
            house.clock.advance(seconds=10)
            house.beat(task, attention=1)
            contact.sweep()
        assert house.again(task).status == Status.RUNNING

    def test_an_ended_task_turns_unreachable_and_keeps_its_word(self, house):
        task = house.ended()
        house.sweep_contact(seconds=600)
        task = house.again(task)
        assert (task.health, task.status) == (Health.UNREACHABLE, Status.COMPLETED)

    def test_a_verdict_about_silence_does_not_overtake_a_heartbeat(self, house):
        from tasks_app.errors import Stale
        from tasks_app.kernel import Decision

        task = house.running()
        heard_at = task.contact.last_contact_at
        house.clock.advance(seconds=31)
        house.beat(task)
        with pytest.raises(Stale):
            lifecycle.apply(
                task,
                Decision(health=Health.UNREACHABLE, unreachable_since=house.clock()),
                now=house.clock(),
                heard_at=heard_at,
            )
        assert house.again(task).health == Health.REACHABLE
