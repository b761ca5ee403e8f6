"""Files leave the sandbox in chunks, by digest, within the quota, and the final snapshot is read before it is kept."""

import pytest

from sandbox_supervisor.protocol.messages import (
    NodeView,
)
from sandbox_supervisor.protocol.states import NodeState
from tasks_app.models import Archive, TaskSnapshot
from tasks_app.services import archive
from tests.task_rows import make_task
from tests.tasks.internal.sandbox import MIB, Sandbox, sha, snapshot

pytestmark = pytest.mark.django_db


# --- artefacts ---


def test_an_artefact_arrives_in_chunks_and_is_kept_by_its_digest(task, sandbox):
    data = bytes(range(256)) * 10_000
    response = sandbox.upload(f"artefacts/{sha(data)}", data, name="report.bin")
    assert response.json() == {"offset": len(data), "complete": True}
    row, file = archive.open_file(task, f"sha256:{sha(data)}")
    with file:
        assert file.read() == data
    assert row.name == "report.bin"


def test_an_interrupted_upload_says_where_it_goes_on(sandbox):
    data = b"x" * 1000
    path = f"artefacts/{sha(data)}"
    sandbox.call("PUT", path, data[:400], offset=0, size=1000)
    assert sandbox.call("GET", path).json() == {"offset": 400, "complete": False}
    assert sandbox.call("HEAD", path)["Upload-Offset"] == "400"
    assert sandbox.call("PUT", path, data[400:], offset=400, size=1000).json()["complete"]


def test_a_chunk_at_the_wrong_place_is_told_the_right_one(sandbox):
    data = b"x" * 1000
    path = f"artefacts/{sha(data)}"
    sandbox.call("PUT", path, data[:400], offset=0, size=1000)
    response = sandbox.call("PUT", path, data[:400], offset=0, size=1000)
    assert (response.status_code, response.json()["offset"], response.json()["code"]) == (409, 400, "offset_mismatch")


def test_a_finished_upload_may_be_repeated(sandbox):
    path = f"artefacts/{sha(b'abc')}"
    sandbox.upload(path, b"abc")
    assert sandbox.upload(path, b"abc").json()["complete"]
    assert Archive.objects.count() == 1


def test_an_empty_artefact_is_one_empty_chunk(sandbox):
    assert sandbox.upload(f"artefacts/{sha(b'')}", b"").json() == {"offset": 0, "complete": True}


def test_other_bytes_than_the_digest_says_are_refused_and_begin_again(sandbox):
    path = f"artefacts/{sha(b'abc')}"
    response = sandbox.call("PUT", path, b"xyz", offset=0, size=3)
    assert (response.status_code, response.json()["code"]) == (422, "digest_mismatch")
    assert sandbox.call("GET", path).json() == {"offset": 0, "complete": False}
    assert sandbox.upload(path, b"abc").json()["complete"]


def test_the_same_file_of_another_task_must_be_sent_again(house, sandbox):
    path = f"artefacts/{sha(b'abc')}"
    sandbox.upload(path, b"abc")
    assert Sandbox(make_task(house)).call("GET", path).json() == {"offset": 0, "complete": False}


@pytest.mark.parametrize(("size", "status"), [(1000, 202), (1001, 422)])
def test_artefacts_stay_within_the_frozen_quota(house, size, status):
    sandbox = Sandbox(make_task(house, policy={"artefact_quota": 1000}))
    response = sandbox.call("PUT", f"artefacts/{'a' * 64}", b"x", offset=0, size=size)
    assert response.status_code == status


def test_announced_but_unfinished_files_count_against_the_quota(house):
    sandbox = Sandbox(make_task(house, policy={"artefact_quota": 1000}))
    sandbox.call("PUT", f"artefacts/{'a' * 64}", b"x", offset=0, size=600)
    response = sandbox.call("PUT", f"artefacts/{'b' * 64}", b"x", offset=0, size=600)
    assert (response.status_code, response.json()["code"]) == (422, "quota_exceeded")


@pytest.mark.parametrize(
    "query", [{}, {"offset": "x", "size": 1}, {"offset": 0}, {"offset": -1, "size": 1}, {"offset": "٣", "size": 1}]
)
def test_an_upload_without_readable_numbers_is_refused(sandbox, query):
    assert sandbox.call("PUT", f"artefacts/{'a' * 64}", b"x", **query).status_code == 400


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a" * 5000, "%00", "con%0Aname"])
def test_a_name_never_becomes_a_path(task, sandbox, name, settings):
    sandbox.upload(f"artefacts/{sha(b'n')}", b"n", name=name)
    row = Archive.objects.get(task=task)
    assert row.file == f"archives/{task.pk}/{sha(b'n')}"


@pytest.mark.parametrize(
    "path", ["artefacts/xyz", f"artefacts/{'A' * 64}", f"artefacts/{'a' * 63}", "artefacts/..%2f..%2fx"]
)
def test_what_is_no_digest_is_no_route(sandbox, path):
    assert sandbox.call("PUT", path, b"x", offset=0, size=1).status_code == 404


# --- archive ---


def test_the_final_snapshot_is_stored_and_answers(task, sandbox):
    data = snapshot(task)
    assert sandbox.upload("archive/snapshot", data, digest=sha(data)).json()["complete"]
    kept = archive.final_snapshot(task)
    assert (kept.round, kept.nodes[0].result_commit) == (1, "b" * 40)


def test_a_snapshot_sent_again_is_stored_once(task, sandbox):
    data = snapshot(task)
    for _ in range(2):
        sandbox.upload("archive/snapshot", data, digest=f"sha256:{sha(data)}")
    assert TaskSnapshot.objects.count() == 1


def test_a_newer_snapshot_of_the_same_round_replaces_the_older_one(task, sandbox):
    for seq in (7, 9):
        data = snapshot(task, seq=seq)
        sandbox.upload("archive/snapshot", data, digest=sha(data))
    assert TaskSnapshot.objects.get().data["seq"] == 9


def test_each_round_keeps_its_snapshot_and_the_last_one_answers(house):
    task = make_task(house, round=2)
    for number in (2, 1):
        data = snapshot(task, round=number)
        Sandbox(task).upload("archive/snapshot", data, digest=sha(data))
    assert TaskSnapshot.objects.count() == 2
    assert archive.final_snapshot(task).round == 2


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"round": 2}, "snapshot_round"),
        ({"round": 0}, "snapshot_round"),
        ({"nodes": (NodeView(key="strange", kind="command", state=NodeState.FAILED, generation=1),)}, "snapshot_nodes"),
    ],
)
def test_a_snapshot_that_is_not_of_this_task_is_refused(task, sandbox, changes, code):
    data = snapshot(task, **changes)
    response = sandbox.call("PUT", "archive/snapshot", data, offset=0, size=len(data), digest=sha(data))
    assert (response.status_code, response.json()["code"]) == (422, code)
    assert not TaskSnapshot.objects.exists()


@pytest.mark.parametrize("data", [b"{}", b"nonsense", b"[]", b'{"epoch": 1}'])
def test_a_snapshot_without_the_promised_shape_is_refused(sandbox, data):
    response = sandbox.call("PUT", "archive/snapshot", data, offset=0, size=len(data), digest=sha(data))
    assert (response.status_code, response.json()["code"]) == (422, "snapshot_malformed")


def test_a_snapshot_whose_result_holds_a_nul_is_kept_on_every_database(task, sandbox):
    node = NodeView(
        key="work", kind="agent", state=NodeState.SUCCEEDED, generation=1, result={"a\0": ["x\0y", "\\u0000"]}
    )
    data = snapshot(task, nodes=(node,))
    assert sandbox.upload("archive/snapshot", data, digest=sha(data)).json()["complete"]
    assert archive.final_snapshot(task).nodes[0].result == {"a\ufffd": ["x\ufffdy", "\\u0000"]}


def test_a_snapshot_beyond_its_limit_is_refused_at_the_first_chunk(sandbox):
    response = sandbox.call("PUT", "archive/snapshot", b"x", offset=0, size=16 * MIB + 1, digest="a" * 64)
    assert (response.status_code, response.json()["code"]) == (422, "file_too_big")


def test_a_capsule_is_kept_unread(task, sandbox):
    data = b"\x00opaque\xff" * 1000
    assert sandbox.upload("archive/capsule", data, digest=sha(data)).json()["complete"]
    assert Archive.objects.get(task=task, kind="capsule").stored_at is not None


@pytest.mark.parametrize("kind", ["artefact", "nonsense", "..", "snapshot2"])
def test_another_kind_of_archive_is_unknown(sandbox, kind):
    assert sandbox.call("PUT", f"archive/{kind}", b"x", offset=0, size=1, digest="a" * 64).status_code == 404


def test_a_stored_archive_is_told_once_in_the_history(task, sandbox):
    data = snapshot(task)
    for _ in range(2):
        sandbox.upload("archive/snapshot", data, digest=sha(data))
    assert [event.kind for event in task.events.all()] == ["archive.stored"]


# --- crashes and storage ---


def test_a_chunk_that_a_crash_left_short_is_noticed_and_the_upload_begins_again(task, sandbox):
    from django.core.files.base import ContentFile
    from django.core.files.storage import default_storage

    path = f"artefacts/{sha(b'abcdef')}"
    sandbox.call("PUT", path, b"abc", offset=0, size=6)
    name = f"uploads/{Archive.objects.get().pk}/{0:015d}"
    default_storage.delete(name)
    default_storage.save(name, ContentFile(b"a"))
    assert sandbox.call("PUT", path, b"def", offset=3, size=6).status_code == 422
    assert sandbox.upload(path, b"abcdef", step=3).json()["complete"]


def test_a_file_that_a_crash_left_short_is_written_again(task, sandbox):
    from django.core.files.base import ContentFile
    from django.core.files.storage import default_storage

    default_storage.save(archive.file_name(task.pk, f"sha256:{sha(b'abc')}"), ContentFile(b"a"))
    sandbox.upload(f"artefacts/{sha(b'abc')}", b"abc")
    _, file = archive.open_file(task, f"sha256:{sha(b'abc')}")
    with file:
        assert file.read() == b"abc"


def test_a_finished_upload_leaves_no_chunks(task, sandbox):
    from django.core.files.storage import default_storage

    sandbox.upload(f"artefacts/{sha(b'abcdef')}", b"abcdef", step=2)
    assert not default_storage.exists(f"uploads/{Archive.objects.get().pk}")


def test_what_never_arrived_whole_cannot_be_read(task, sandbox):
    from tasks_app.errors import NotVisible

    sandbox.call("PUT", f"artefacts/{sha(b'abc')}", b"a", offset=0, size=3)
    with pytest.raises(NotVisible):
        archive.open_file(task, f"sha256:{sha(b'abc')}")


def test_a_stored_snapshot_lets_a_waiting_deletion_go_on(task, sandbox, django_capture_on_commit_callbacks):
    from tasks_app.services import lifecycle

    lifecycle.request_delete(task.pk, actor="user:somebody")
    data = snapshot(task)
    with django_capture_on_commit_callbacks() as callbacks:
        sandbox.upload("archive/snapshot", data, digest=sha(data))
    assert any(getattr(callback, "args", ())[:1] == ("tasks.reclaim",) for callback in callbacks)


def test_bytes_that_the_control_plane_keeps_itself_are_kept_once(task):
    from tasks_app.models.outcome import ArchiveKind

    first = archive.keep(task, ArchiveKind.PATCH, b"patch", name="a.patch")
    second = archive.keep(task, ArchiveKind.PATCH, b"patch", name="b.patch")
    assert (first.pk, second.name) == (second.pk, "a.patch")


def test_patches_do_not_count_against_the_quota_of_artefacts(house):
    from tasks_app.models.outcome import ArchiveKind

    task = make_task(house, policy={"artefact_quota": 10})
    archive.keep(task, ArchiveKind.PATCH, b"x" * 100, name="a.patch")
    assert Sandbox(task).upload(f"artefacts/{sha(b'0123456789')}", b"0123456789").status_code == 201
