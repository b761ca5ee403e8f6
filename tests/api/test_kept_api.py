"""What the control plane keeps of a task answers for ever: deliveries, patches, archived files, the final snapshot."""

import re

import pytest

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import DeliveryState, NodeView, Snapshot
from sandbox_supervisor.protocol.states import GraphState, NodeState
from tasks_app.models import Task, TaskSnapshot
from tasks_app.models.outcome import ArchiveKind
from tasks_app.services import archive, clock
from tasks_app.states import Presence, Status
from tests.task_rows import House, make_delivery, make_house, make_task

pytestmark = pytest.mark.django_db


@pytest.fixture
def reclaimed(house: House) -> Task:
    return make_task(house, status=Status.COMPLETED, presence=Presence.RECLAIMED)


def test_a_delivery_and_its_change_request_answer_after_reclamation(api, reclaimed):
    make_delivery(reclaimed, patch=b"From b\n")
    record = api.get(f"tasks/{reclaimed.pk}/deliveries").json()["data"][0]
    assert (record["state"], record["commit"], record["branch"]) == ("delivered", "b" * 40, reclaimed.task_branch)
    assert record["change_request"]["title"] == "Add a file"
    one = api.get(f"tasks/{reclaimed.pk}/deliveries/{record['id']}")
    assert one.json() == record


def test_a_patch_is_downloaded_under_the_name_that_the_delivery_gives(api, reclaimed):
    row = make_delivery(reclaimed, patch=b"From b\n")
    record_path = f"tasks/{reclaimed.pk}/deliveries/{row.pk}"
    patch = api.get(record_path).json()["patch"]
    response = api.get(patch["path"])
    assert b"".join(response.streaming_content) == b"From b\n"
    assert response["Content-Length"] == str(patch["size"])
    assert response["Content-Type"] == "application/octet-stream"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["ETag"] == f'"{patch["digest"]}"'
    assert api.get(patch["path"], if_none_match=response["ETag"]).status_code == 304


def test_a_delivery_without_a_patch_says_so(api, reclaimed):
    row = make_delivery(reclaimed)
    assert api.get(f"tasks/{reclaimed.pk}/deliveries/{row.pk}").json()["patch"] is None
    assert api.get(f"tasks/{reclaimed.pk}/deliveries/{row.pk}/patch").json()["code"] == "patch_missing"


def test_nothing_to_deliver_is_said_as_such(api, reclaimed):
    make_delivery(reclaimed, state=DeliveryState.NOTHING, commit="", branch="", change_request=None)
    record = api.get(f"tasks/{reclaimed.pk}/deliveries").json()["data"][0]
    assert (record["state"], record["commit"], record["branch"]) == ("nothing_to_deliver", None, "")


def test_a_conflict_tells_what_was_found(api, reclaimed):
    make_delivery(
        reclaimed, state=DeliveryState.CONFLICT, change_request=None, code="remote_moved", message="Somebody moved it.",
        facts={"found": "c" * 40, "expected": ""},
    )  # fmt: skip
    record = api.get(f"tasks/{reclaimed.pk}/deliveries").json()["data"][0]
    assert (record["code"], record["facts"]["found"]) == ("remote_moved", "c" * 40)


def test_a_delivery_of_another_task_is_not_found_through_ones_own(api, house, reclaimed):
    row = make_delivery(make_task(make_house("other")), patch=b"From b\n")
    assert api.get(f"tasks/{reclaimed.pk}/deliveries/{row.pk}").status_code == 404
    assert api.get(f"tasks/{reclaimed.pk}/deliveries/{row.pk}/patch").status_code == 404


def test_the_archive_lists_its_receipts(api, reclaimed):
    row = archive.keep(reclaimed, ArchiveKind.ARTEFACT, b"report", name="report.txt")
    record = api.get(f"tasks/{reclaimed.pk}/archive").json()["data"][0]
    assert (record["name"], record["digest"], record["size"], record["state"]) == (
        "report.txt",
        row.digest,
        6,
        "stored",
    )


def test_an_archived_file_is_downloaded_by_its_digest(api, reclaimed):
    row = archive.keep(reclaimed, ArchiveKind.ARTEFACT, b"report", name="report.txt")
    response = api.get(f"tasks/{reclaimed.pk}/archive/{row.digest}")
    assert b"".join(response.streaming_content) == b"report"


def test_knowing_a_digest_is_not_having_the_file(api, reclaimed):
    row = archive.keep(make_task(make_house("other")), ArchiveKind.ARTEFACT, b"theirs", name="theirs.txt")
    assert api.get(f"tasks/{reclaimed.pk}/archive/{row.digest}").json()["code"] == "file_unknown"


@pytest.mark.parametrize("digest", ["sha256:../../etc/passwd", "..", "sha256:" + "a" * 64, "%00"])
def test_what_is_no_kept_file_is_not_found(api, reclaimed, digest):
    path = f"tasks/{reclaimed.pk}/archive/{digest}"
    assert api.get(path).status_code == 404
    assert api.get(path, if_none_match=f'"{digest}"').status_code == 404


def test_the_head_of_a_kept_file_is_that_of_the_file(api, reclaimed):
    row = archive.keep(reclaimed, ArchiveKind.ARTEFACT, b"report", name="report.txt")
    head = api.call("HEAD", f"tasks/{reclaimed.pk}/archive/{row.digest}")
    head.close()
    assert (head.status_code, head["Content-Length"]) == (200, "6")


@pytest.mark.parametrize("name", ["../../x.html", 'a"; filename="b.html', "a\r\nX: y", "ü\u202e.txt", "", "a/b/"])
def test_the_name_of_a_kept_file_stays_a_name(api, reclaimed, name):
    row = archive.keep(reclaimed, ArchiveKind.ARTEFACT, b"<script>", name=name)
    response = api.get(f"tasks/{reclaimed.pk}/archive/{row.digest}")
    assert b"".join(response.streaming_content) == b"<script>"
    assert re.fullmatch(r"attachment; filename\*=UTF-8''[A-Za-z0-9%._~-]+", response["Content-Disposition"])
    assert response["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert "X" not in response


def test_the_final_snapshot_answers_after_reclamation(api, reclaimed):
    node = NodeView(key="work", kind="command", state=NodeState.SUCCEEDED, generation=1, result={"n": 1})
    final = Snapshot(
        epoch="e", seq=9, graph=GraphState.SUCCEEDED, round=1, boot=1, nodes=(node,), attempts=(), requests=()
    )
    for number in (1, 2):
        TaskSnapshot.objects.create(
            task=reclaimed,
            round=number,
            digest=f"sha256:{number}",
            data={**codec.plain(final), "round": number},
            stored_at=clock.database_now(),
        )
    response = api.get(f"tasks/{reclaimed.pk}/snapshot")
    kept = codec.decode(response.content, Snapshot)
    assert (kept.round, kept.nodes[0].result) == (2, {"n": 1})
    assert api.get(f"tasks/{reclaimed.pk}/snapshot", if_none_match=response["ETag"]).status_code == 304


def test_a_task_without_a_snapshot_says_so(api, task):
    assert api.get(f"tasks/{task.pk}/snapshot").json()["code"] == "snapshot_missing"
