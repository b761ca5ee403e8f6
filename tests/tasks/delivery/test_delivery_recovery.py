"""Lost answers, moved branches, remotes in trouble and killed workers end in one branch or in a named conflict."""

import itertools

import pytest

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app.models import Delivery
from tasks_app.services import clock, delivery
from tasks_app.services.delivery import outcome
from tests.tasks.delivery.handing import carried, hand_over

pytestmark = pytest.mark.django_db


# --- conflict and recovery ---


def test_a_branch_that_is_taken_is_a_conflict_for_a_person(project, task):
    other = project.commit({"o.txt": "o"})
    project.move(task.task_branch, other)
    row = carried(hand_over(project, task))
    assert (row.state, row.code) == (DeliveryState.CONFLICT, "remote_moved")
    assert row.facts["found"] == other
    assert "rerun the delivery node" in row.message
    assert project.refs()[f"refs/heads/{task.task_branch}"] == other


def test_a_second_generation_replaces_what_the_task_delivered_before(project, task):
    carried(hand_over(project, task))
    second = carried(hand_over(project, task, {"b.txt": "b"}, generation=2))
    assert second.state == DeliveryState.DELIVERED
    assert project.refs()[f"refs/heads/{task.task_branch}"] == second.commit


def test_a_second_generation_never_overwrites_somebody_elses_commit(project, task):
    first = carried(hand_over(project, task))
    other = project.commit({"o.txt": "o"}, onto=first.commit)
    project.move(task.task_branch, other)
    second = carried(hand_over(project, task, {"b.txt": "b"}, generation=2))
    assert second.state == DeliveryState.CONFLICT
    assert project.refs()[f"refs/heads/{task.task_branch}"] == other


@pytest.mark.parametrize(("tries", "state"), [(0, DeliveryState.CONFLICT), (8, DeliveryState.DELIVERED)])
def test_a_push_given_up_that_has_arrived_after_all_is_replaced_as_the_tasks_own(project, task, tries, state):
    """Its answer was lost, then the remote stayed away; one that was never tried cannot be ours."""
    first = hand_over(project, task)
    Delivery.objects.filter(pk=first.pk).update(
        attempts=tries, state=DeliveryState.FAILED, settled_at=clock.database_now()
    )
    project.move(task.task_branch, first.commit)
    second = carried(hand_over(project, task, {"b.txt": "b"}, generation=2))
    assert second.state == state
    held = second.commit if state == DeliveryState.DELIVERED else first.commit
    assert project.refs()[f"refs/heads/{task.task_branch}"] == held


def test_an_earlier_delivery_that_comes_late_never_replaces_a_later_one(project, task):
    first = hand_over(project, task)
    Delivery.objects.filter(pk=first.pk).update(attempts=1)
    second = carried(hand_over(project, task, {"b.txt": "b"}, generation=2))
    assert carried(first).state == DeliveryState.CONFLICT
    assert project.refs()[f"refs/heads/{task.task_branch}"] == second.commit


def test_a_worker_killed_after_the_push_finds_the_work_done(project, task):
    row = hand_over(project, task)
    Delivery.objects.filter(pk=row.pk).update(attempts=1, expected_old="")
    project.move(task.task_branch, row.commit)
    assert carried(row).state == DeliveryState.DELIVERED


def test_what_the_branch_must_hold_is_settled_before_the_first_push_and_kept(project, task):
    """A later try must not take somebody else's commit for the old one."""
    row = hand_over(project, task)
    Delivery.objects.filter(pk=row.pk).update(attempts=1, expected_old="")
    project.move(task.task_branch, project.commit({"o.txt": "o"}))
    assert carried(row).state == DeliveryState.CONFLICT


# --- over HTTP, with faults ---


def test_a_delivery_over_http_arrives(project, http_task):
    row = carried(hand_over(project, http_task.task))
    assert row.state == DeliveryState.DELIVERED
    assert project.refs()[f"refs/heads/{http_task.task.task_branch}"] == row.commit


def test_an_answer_lost_after_an_accepted_push_gives_one_branch_and_a_delivered_row(project, http_task):
    http_task.faults.lose_push_answers = 1
    row = carried(hand_over(project, http_task.task))
    assert http_task.faults.lost.is_set()
    assert row.state == DeliveryState.DELIVERED
    assert set(project.refs()) == {"refs/heads/main", f"refs/heads/{http_task.task.task_branch}"}


def test_a_remote_that_asks_for_a_password_fails_the_delivery_at_once(project, http_task):
    http_task.faults.ask_password = True
    row = carried(hand_over(project, http_task.task))
    assert (row.state, row.code, row.attempts) == (DeliveryState.FAILED, "remote_auth", 1)


def test_a_remote_in_trouble_is_tried_again_later(project, http_task):
    http_task.faults.status = 503
    row = carried(hand_over(project, http_task.task))
    assert (row.state, row.code) == (DeliveryState.QUEUED, "remote_unavailable")
    assert row.look_again_at is not None
    http_task.faults.status = 0
    assert carried(row).state == DeliveryState.DELIVERED


def test_a_delivery_is_left_alone_until_its_back_off_is_over(project, http_task):
    http_task.faults.status = 503
    row = carried(hand_over(project, http_task.task))
    asked = len(http_task.faults.requests)
    delivery.deliver(row.pk)
    assert len(http_task.faults.requests) == asked


def test_a_remote_that_stays_away_is_given_up_after_the_last_try(project, http_task):
    http_task.faults.status = 503
    row = hand_over(project, http_task.task)
    waits: list[float] = []
    for _ in range(outcome.TRIES):
        before = clock.database_now()
        carried(row)
        waits.append((row.look_again_at - before).total_seconds() if row.look_again_at else 0.0)
    assert (row.state, row.attempts) == (DeliveryState.FAILED, outcome.TRIES)
    assert row.code == "remote_unavailable"
    assert all(later > earlier for earlier, later in itertools.pairwise(waits[:4]))


def test_a_branch_moved_during_the_push_is_a_conflict(project, http_task):
    other = project.commit({"o.txt": "o"})
    branch = http_task.task.task_branch
    http_task.faults.before_push = lambda: project.move(branch, other)
    row = carried(hand_over(project, http_task.task))
    assert row.state == DeliveryState.CONFLICT
    assert project.refs()[f"refs/heads/{branch}"] == other
