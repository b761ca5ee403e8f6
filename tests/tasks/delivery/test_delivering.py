"""A delivery happens once: whatever is lost, repeated, moved or raced, and only on the frozen task branch."""

import hashlib
import itertools
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox_supervisor.protocol.messages import DeliveryAnswer, DeliveryRequest, DeliveryState
from tasks_app.errors import Conflict, KeyReused, NotVisible, Refused
from tasks_app.models import Delivery, Lease, Task, TaskEvent
from tasks_app.services import archive, clock, delivery, leases, uploads
from tasks_app.services.delivery import limits, mirror, outcome
from tasks_app.states import Status
from tests.git_remotes import HttpRemote, Project, git
from tests.task_rows import House, make_house, make_task
from workspaces_app.models import AllowedRoot

pytestmark = pytest.mark.django_db

CHUNK = 1024 * 1024


@pytest.fixture
def house(project: Project) -> House:
    house = make_house(remote=str(project.remote))
    AllowedRoot.objects.create(workspace=house.workspace, path=str(project.remote.parent))
    return house


@pytest.fixture
def task(house: House, project: Project) -> Task:
    return make_task(house, base_commit=project.base)


def request_for(task: Task, commit: str, bundle: Path | None, **changes: object) -> DeliveryRequest:
    data = bundle.read_bytes() if bundle else b""
    generation = changes.get("generation", 1)
    values: dict[str, object] = {
        "key": f"{task.pk}:deliver:{generation}:push",
        "node": "deliver",
        "generation": generation,
        "round": 1,
        "base_commit": task.base_commit,
        "commit": commit,
        "bundle_digest": f"sha256:{hashlib.sha256(data).hexdigest()}" if bundle else None,
        "bundle_size": len(data),
        "title": "Add a file",
        "body": "As asked.",
        "change_request": True,
    }
    return DeliveryRequest(**values | changes)  # type: ignore[arg-type]


def send(task: Task, request: DeliveryRequest, bundle: Path) -> DeliveryAnswer:
    answer = delivery.receive(task, request)
    data = bundle.read_bytes()
    while answer.state is DeliveryState.RECEIVED:
        chunk = data[answer.offset : answer.offset + CHUNK]
        answer = delivery.accept_chunk(task, answer.id, offset=answer.offset, data=chunk)
    return answer


def hand_over(project: Project, task: Task, files: dict[str, str] | None = None, **changes: object) -> Delivery:
    """Bring a commit with ``files`` up to the queue."""
    commit = project.commit(files or {"a.txt": "a\n"})
    bundle = project.bundle(commit, branch=task.task_branch)
    answer = send(task, request_for(task, commit, bundle, **changes), bundle)
    return Delivery.objects.get(pk=answer.id)


def carried(row: Delivery) -> Delivery:
    """Let a worker take the delivery now, whatever back-off it has."""
    Delivery.objects.filter(pk=row.pk).update(look_again_at=None)
    delivery.deliver(row.pk)
    row.refresh_from_db()
    return row


def patch_of(row: Delivery) -> bytes:
    _, file = archive.open_file(row.task, row.change_request["patch"])
    with file:
        return bytes(file.read())


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
    body = carried(hand_over(project, task)).change_request["body"]
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


@pytest.fixture
def http_task(project: Project, http_remote: HttpRemote) -> SimpleNamespace:
    house = make_house("web", remote=f"{http_remote.url}/remote.git")
    return SimpleNamespace(task=make_task(house, base_commit=project.base), faults=http_remote.faults)


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
    waits = []
    for _ in range(outcome.TRIES):
        before = clock.database_now()
        carried(row)
        waits.append(row.look_again_at and (row.look_again_at - before).total_seconds())
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
