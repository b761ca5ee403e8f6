"""A delivery happens once, on exactly the frozen task branch, with a change request that says where it comes from."""

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest

from sandbox_supervisor.protocol.messages import DeliveryState
from tasks_app.errors import KeyReused
from tasks_app.models import Delivery, Lease, TaskEvent
from tasks_app.services import clock, delivery, leases, uploads
from tasks_app.services.delivery import mirror
from tests.git_remotes import git
from tests.task_rows import make_task
from tests.tasks.delivery.handing import carried, hand_over, patch_of, request_for, send

pytestmark = pytest.mark.django_db


# --- the ordinary way ---


def test_a_delivery_puts_its_commit_on_exactly_the_task_branch(project, task):
    before = project.refs()
    row = carried(hand_over(project, task))
    assert (row.state, row.code) == (DeliveryState.DELIVERED, "")
    assert project.refs() == before | {f"refs/heads/{task.task_branch}": row.commit}


def test_a_delivered_row_tells_the_sandbox_branch_commit_and_change_request(project, task):
    row = carried(hand_over(project, task))
    answer = delivery.answer(delivery.find(task, row.pk))
    assert (answer.state, answer.branch, answer.commit) == (DeliveryState.DELIVERED, task.task_branch, row.commit)
    assert answer.change_request is not None
    assert answer.change_request["title"] == "Add a file"


def test_the_change_request_names_where_it_comes_from(project, task):
    body = (carried(hand_over(project, task)).change_request or {})["body"]
    assert body.startswith("As asked.\n\n")
    for line in (
        f"Caisson-Task: {task.pk}",
        "Caisson-Creator: main-operator",
        f"Caisson-Flow: work@1 {task.flow_version.digest}",
        "Caisson-Policy-Revision: 1",
        f"Caisson-Capabilities: {task.capability_digest}",
    ):
        assert line in body.splitlines()


def test_the_patch_applies_to_the_baseline_and_gives_the_delivered_tree(project, task):
    commit = project.commit({"a.txt": "a\n", "binary": b"\x00\x01" * 50, "sub/b.txt": "no end of line"})
    bundle = project.bundle(commit, branch=task.task_branch)
    row = carried(Delivery.objects.get(pk=send(task, request_for(task, commit, bundle), bundle).id))
    patch = patch_of(row)
    assert row.facts["patch"]["digest"] == f"sha256:{hashlib.sha256(patch).hexdigest()}"
    git(project.clone, "checkout", "--quiet", "--detach", project.base)
    git(project.clone, "am", "--quiet", stdin=patch)
    assert git(project.clone, "rev-parse", "HEAD^{tree}") == git(project.clone, "rev-parse", f"{commit}^{{tree}}")
    assert git(project.clone, "log", "-1", "--format=%s") == "Add a file"


def test_a_body_that_looks_like_a_patch_does_not_become_one(project, task):
    body = "text\n---\ndiff --git a/evil b/evil\nFrom abc\n-- \nmore"
    commit = project.commit({"a.txt": "a\n"})
    bundle = project.bundle(commit, branch=task.task_branch)
    row = carried(Delivery.objects.get(pk=send(task, request_for(task, commit, bundle, body=body), bundle).id))
    patch = patch_of(row)
    git(project.clone, "checkout", "--quiet", "--detach", project.base)
    git(project.clone, "am", "--quiet", stdin=patch)
    assert git(project.clone, "rev-parse", "HEAD^{tree}") == git(project.clone, "rev-parse", f"{commit}^{{tree}}")


def test_without_a_wish_for_a_change_request_there_is_none(project, task):
    row = carried(hand_over(project, task, change_request=False))
    assert row.state == DeliveryState.DELIVERED
    assert row.change_request is None


def test_nothing_to_deliver_is_settled_at_once_without_a_branch(project, task):
    answer = delivery.receive(task, request_for(task, task.base_commit, None))
    row = Delivery.objects.get(pk=answer.id)
    assert (answer.state, answer.commit, answer.branch) == (DeliveryState.NOTHING, None, "")
    assert row.settled_at is not None
    assert set(project.refs()) == {"refs/heads/main"}


def test_a_delivery_is_told_once_in_the_history_of_the_task(project, task):
    row = hand_over(project, task)
    carried(row)
    carried(row)
    assert [event.kind for event in TaskEvent.objects.filter(task=task)] == ["delivery.delivered"]


def test_the_chunks_of_a_settled_delivery_are_gone(project, task, state_dir):
    from django.core.files.storage import default_storage

    row = hand_over(project, task)
    assert default_storage.exists(uploads.folder(row.pk))
    carried(row)
    assert not default_storage.exists(uploads.folder(row.pk))


# --- once ---


def test_the_same_request_again_is_the_same_delivery(project, task):
    commit = project.commit({"a.txt": "a"})
    request = request_for(task, commit, project.bundle(commit, branch=task.task_branch))
    assert delivery.receive(task, request).id == delivery.receive(task, request).id
    assert Delivery.objects.count() == 1


def test_another_commit_of_the_same_generation_is_refused(project, task):
    hand_over(project, task)
    other = project.commit({"b.txt": "b"})
    with pytest.raises(KeyReused):
        delivery.receive(task, request_for(task, other, project.bundle(other, branch=task.task_branch)))


def test_a_settled_delivery_answers_as_it_was_settled(project, task):
    row = carried(hand_over(project, task))
    bundle = project.clone.parent / "delivery.bundle"
    answer = delivery.receive(task, request_for(task, row.commit, bundle))
    assert (answer.id, answer.state) == (row.pk, DeliveryState.DELIVERED)


def test_a_bundle_packed_anew_replaces_an_incomplete_one(project, task):
    commit = project.commit({"a.txt": "a" * 5000})
    bundle = project.bundle(commit, branch=task.task_branch)
    first = delivery.receive(task, request_for(task, commit, bundle))
    delivery.accept_chunk(task, first.id, offset=0, data=bundle.read_bytes()[:50])
    git(project.clone, "branch", "-f", "w", commit)
    other = project.clone.parent / "other.bundle"
    git(
        project.clone,
        "-c",
        "core.compression=0",
        "bundle",
        "create",
        "--version=3",
        str(other),
        "w",
        f"^{project.base}",
    )
    again = delivery.receive(task, request_for(task, commit, other))
    assert (again.id, again.offset, again.state) == (first.id, 0, DeliveryState.RECEIVED)


def test_carrying_a_settled_delivery_again_changes_nothing(project, task):
    row = carried(hand_over(project, task))
    project.move("main", project.commit({"m.txt": "m"}))
    before = project.refs()
    carried(row)
    assert project.refs() == before


def test_a_worker_that_finds_the_lease_taken_leaves_the_delivery_alone(project, task):
    row = hand_over(project, task)
    leases.take(mirror.lease_name(task.clone_url), now=clock.database_now(), ttl=timedelta(minutes=1))
    assert carried(row).state == DeliveryState.QUEUED
    assert carried(row).attempts == 0


def test_the_lease_is_given_back_after_a_delivery(project, task):
    carried(hand_over(project, task))
    assert Lease.objects.get(name=mirror.lease_name(task.clone_url)).held_until is None


def test_a_worker_that_lost_its_lease_does_not_push(project, task, monkeypatch):
    row = hand_over(project, task)
    prepare = mirror.prepare

    def slow(*arguments: object, **named: object) -> Path:
        path = prepare(*arguments, **named)  # type: ignore[arg-type]
        Lease.objects.filter(name=mirror.lease_name(task.clone_url)).update(token="somebody else")
        return path

    monkeypatch.setattr(mirror, "prepare", slow)
    assert carried(row).state == DeliveryState.QUEUED
    assert set(project.refs()) == {"refs/heads/main"}


# --- sweeps ---


def test_the_sweep_sends_what_is_due_and_nothing_else(project, house, monkeypatch):
    due = hand_over(project, make_task(house, base_commit=project.base))
    later = hand_over(project, make_task(house, base_commit=project.base))
    Delivery.objects.filter(pk=later.pk).update(look_again_at=clock.database_now() + timedelta(minutes=1))
    settled = carried(hand_over(project, make_task(house, base_commit=project.base)))
    assert settled.state == DeliveryState.DELIVERED
    sent: list[str] = []
    monkeypatch.setattr("tasks_app.queue.deliver", sent.append)
    delivery.sweep()
    assert sent == [due.pk]


def test_a_complete_bundle_asks_for_a_worker(project, task, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks() as callbacks:
        row = hand_over(project, task)
    assert any(getattr(callback, "args", ())[-1:] == (row.pk,) for callback in callbacks)
