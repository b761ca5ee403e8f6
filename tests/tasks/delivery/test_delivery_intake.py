"""A delivery is taken in bounded pieces, and what the frozen task cannot mean is refused before the network."""

from dataclasses import replace

import pytest

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app.errors import Conflict, NotVisible, Refused
from tasks_app.models import Delivery, Task
from tasks_app.services import clock, delivery, uploads
from tasks_app.services.delivery import limits
from tasks_app.states import Status
from tests.git_remotes import git
from tests.task_rows import make_task
from tests.tasks.delivery.handing import CHUNK, carried, hand_over, request_for, send
from workspaces_app.models import AllowedRoot

pytestmark = pytest.mark.django_db


# --- chunks ---


def test_an_upload_goes_on_where_it_stopped(project, task):
    commit = project.commit({"a.bin": "".join(map(str, range(20_000)))})
    bundle = project.bundle(commit, branch=task.task_branch)
    data = bundle.read_bytes()
    request = request_for(task, commit, bundle)
    first = delivery.receive(task, request)
    delivery.accept_chunk(task, first.id, offset=0, data=data[:100])
    again = delivery.receive(task, request)
    assert again.offset == 100
    last = delivery.accept_chunk(task, first.id, offset=100, data=data[100:])
    assert (last.state, last.offset) == (DeliveryState.QUEUED, len(data))


def test_a_chunk_at_the_wrong_place_is_told_the_right_one(project, task):
    commit = project.commit({"a.txt": "a"})
    bundle = project.bundle(commit, branch=task.task_branch)
    answer = delivery.receive(task, request_for(task, commit, bundle))
    with pytest.raises(Conflict) as conflict:
        delivery.accept_chunk(task, answer.id, offset=7, data=b"x")
    assert conflict.value.facts["offset"] == 0


def test_a_repeated_last_chunk_answers_that_the_bundle_is_here(project, task):
    row = hand_over(project, task)
    answer = delivery.accept_chunk(task, row.pk, offset=0, data=b"x")
    assert (answer.state, answer.offset) == (DeliveryState.QUEUED, row.bundle_size)


@pytest.mark.parametrize("data", [b"", b"x" * (CHUNK + 1)])
def test_a_chunk_without_bytes_or_with_too_many_is_refused(project, task, data):
    commit = project.commit({"a.txt": "a"})
    answer = delivery.receive(task, request_for(task, commit, project.bundle(commit, branch=task.task_branch)))
    with pytest.raises(Refused) as refused:
        delivery.accept_chunk(task, answer.id, offset=0, data=data)
    assert refused.value.code == "chunk_malformed"


def test_bytes_beyond_the_announced_size_are_refused(project, task):
    commit = project.commit({"a.txt": "a"})
    bundle = project.bundle(commit, branch=task.task_branch)
    answer = delivery.receive(task, request_for(task, commit, bundle))
    with pytest.raises(Refused):
        delivery.accept_chunk(task, answer.id, offset=0, data=bundle.read_bytes() + b"x")


def test_other_bytes_than_announced_begin_again_and_never_reach_a_worker(project, task):
    commit = project.commit({"a.txt": "a"})
    bundle = project.bundle(commit, branch=task.task_branch)
    answer = delivery.receive(task, request_for(task, commit, bundle))
    with pytest.raises(uploads.DigestMismatch):
        delivery.accept_chunk(task, answer.id, offset=0, data=b"x" * bundle.stat().st_size)
    row = Delivery.objects.get(pk=answer.id)
    assert (row.state, row.bundle_received) == (DeliveryState.RECEIVED, 0)
    assert send(task, request_for(task, commit, bundle), bundle).state is DeliveryState.QUEUED


def test_a_delivery_of_another_task_is_not_visible(project, house, task):
    row = hand_over(project, task)
    other = make_task(house, base_commit=project.base)
    with pytest.raises(NotVisible):
        delivery.find(other, row.pk)
    with pytest.raises(NotVisible):
        delivery.accept_chunk(other, row.pk, offset=0, data=b"x")


# --- refused before the network ---


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"key": "tsk_other:deliver:1:push"}, "delivery_key"),
        ({"node": "work"}, "delivery_key"),
        ({"round": 0}, "delivery_malformed"),
        ({"base_commit": "b" * 40}, "baseline_differs"),
        ({"commit": "main"}, "commit_malformed"),
        ({"commit": "-x"}, "commit_malformed"),
        ({"bundle_digest": None}, "digest_malformed"),
        ({"bundle_digest": "sha256:xyz"}, "digest_malformed"),
        ({"bundle_size": 0}, "bundle_too_big"),
        ({"bundle_size": limits.BUNDLE_LIMIT + 1}, "bundle_too_big"),
    ],
)
def test_a_request_that_the_frozen_task_cannot_make_is_refused(project, task, changes, code):
    commit = project.commit({"a.txt": "a"})
    bundle = project.bundle(commit, branch=task.task_branch)
    with pytest.raises(Refused) as refused:
        delivery.receive(task, replace(request_for(task, commit, bundle), **changes))
    assert refused.value.code == code
    assert not Delivery.objects.exists()


def test_a_node_that_is_no_delivery_node_is_refused(project, task):
    commit = project.commit({"a.txt": "a"})
    bundle = project.bundle(commit, branch=task.task_branch)
    with pytest.raises(Refused) as refused:
        delivery.receive(task, request_for(task, commit, bundle, node="work", key=f"{task.pk}:work:1:push"))
    assert refused.value.code == "not_a_delivery_node"


def test_a_bundle_of_the_largest_size_is_announced(project, task):
    commit = project.commit({"a.txt": "a"})
    bundle = project.bundle(commit, branch=task.task_branch)
    answer = delivery.receive(task, request_for(task, commit, bundle, bundle_size=limits.BUNDLE_LIMIT))
    assert answer.state is DeliveryState.RECEIVED


def test_a_bundle_for_another_branch_is_refused_and_pushes_nothing(project, task):
    commit = project.commit({"a.txt": "a"})
    bundle = project.bundle(commit, branch="main-2")
    row = carried(Delivery.objects.get(pk=send(task, request_for(task, commit, bundle), bundle).id))
    assert (row.state, row.code) == (DeliveryState.REFUSED, "bundle_refs")
    assert set(project.refs()) == {"refs/heads/main"}


def test_a_bundle_with_another_tip_is_refused(project, task):
    commit, other = project.commit({"a.txt": "a"}), project.commit({"b.txt": "b"})
    bundle = project.bundle(other, branch=task.task_branch)
    row = carried(Delivery.objects.get(pk=send(task, request_for(task, commit, bundle), bundle).id))
    assert (row.state, row.code) == (DeliveryState.REFUSED, "bundle_commit")


def test_a_commit_beside_the_baseline_is_refused_and_pushes_nothing(project, task):
    git(project.clone, "checkout", "--quiet", "--orphan", "elsewhere")
    git(project.clone, "commit", "--quiet", "--message", "unrelated")
    stranger = git(project.clone, "rev-parse", "HEAD")
    git(project.clone, "update-ref", f"refs/heads/{task.task_branch}", stranger)
    bundle = project.clone.parent / "x.bundle"
    git(project.clone, "bundle", "create", str(bundle), f"refs/heads/{task.task_branch}")
    row = carried(Delivery.objects.get(pk=send(task, request_for(task, stranger, bundle), bundle).id))
    assert (row.state, row.code) == (DeliveryState.REFUSED, "not_a_descendant")
    assert set(project.refs()) == {"refs/heads/main"}


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.FAILED])
def test_a_delivery_of_a_task_that_has_ended_meanwhile_is_refused(project, house, status):
    task = make_task(house, base_commit=project.base)
    row = hand_over(project, task)
    now = clock.database_now()
    Task.objects.filter(pk=task.pk).update(
        status=status, first_terminal_at=now, retain_until=now, failure_code="node_failed"
    )
    assert (carried(row).state, row.code) == (DeliveryState.REFUSED, "task_ended")
    assert set(project.refs()) == {"refs/heads/main"}


def test_a_remote_whose_root_is_no_longer_allowed_is_not_touched(project, task):
    row = hand_over(project, task)
    AllowedRoot.objects.all().delete()
    assert (carried(row).state, row.code) == (DeliveryState.FAILED, "path_not_allowed")
