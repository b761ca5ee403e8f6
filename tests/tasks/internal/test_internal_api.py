"""What sandboxes call: only with the task token, within its scope, in bounded pieces, and answered with problems."""

import hashlib
import json
from typing import Any

import pytest
from django.test import Client

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import (
    DeliveryAnswer,
    DeliveryRequest,
    DeliveryState,
    Head,
    Heartbeat,
    HeartbeatAnswer,
    NodeView,
    Snapshot,
)
from sandbox_supervisor.protocol.states import GraphState, NodeState
from tasks_app.models import Archive, Task, TaskSnapshot
from tasks_app.services import tokens
from tasks_app.states import Presence, Status
from tests.task_rows import House, make_house, make_task
from workspaces_app.rest import throttles

pytestmark = pytest.mark.django_db

MIB = 1024 * 1024


@pytest.fixture
def house() -> House:
    return make_house()


@pytest.fixture
def task(house: House) -> Task:
    return make_task(house)


class Sandbox:
    """A client that speaks like the supervisor of one task."""

    def __init__(self, task: Task, token: str | None = None) -> None:
        self.client = Client(raise_request_exception=False, headers={"Host": "control"})
        self.token = tokens.task_token(task) if token is None else token

    def call(self, method: str, path: str, data: bytes = b"", **query: object) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        text = "&".join(f"{name}={value}" for name, value in query.items())
        return self.client.generic(
            method, f"/internal/v1/{path}?{text}", data, content_type="application/octet-stream", headers=headers
        )

    def upload(self, path: str, data: bytes, step: int = MIB, **query: object) -> Any:
        """Send everything from the beginning; give the last answer."""
        response = None
        for offset in range(0, max(1, len(data)), step):
            response = self.call("PUT", path, data[offset : offset + step], offset=offset, size=len(data), **query)
            assert response.status_code in {201, 202}, response.content
        return response


@pytest.fixture
def sandbox(task: Task) -> Sandbox:
    return Sandbox(task)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def snapshot(task: Task, **changes: Any) -> bytes:
    values: dict[str, Any] = {
        "epoch": "e1",
        "seq": 7,
        "graph": GraphState.SUCCEEDED,
        "round": task.round,
        "boot": 1,
        "nodes": (
            NodeView(key="work", kind="command", state=NodeState.SUCCEEDED, generation=1, result_commit="b" * 40),
        ),
        "attempts": (),
        "requests": (),
    }
    return codec.encode(Snapshot(**values | changes))


# --- who may call ---


ROUTES = [
    ("POST", "heartbeat"),
    ("GET", "spec"),
    ("PUT", f"artefacts/{'a' * 64}"),
    ("POST", "deliveries"),
    ("GET", "deliveries/dlv_1"),
    ("PUT", "deliveries/dlv_1/bundle"),
    ("PUT", "archive/snapshot"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "token", ["", "nonsense", "cst_tsk_0.k1.00", "cst_x.y", "csn_1_2", "cst_" + "x" * 5000, "cst_ü.k1.0"]
)
def test_without_a_task_token_of_ours_nothing_answers(task, method, path, token):
    response = Sandbox(task, token).call(method, path)
    assert response.status_code == 401
    assert response["Content-Type"] == "application/problem+json"
    assert response.json()["code"] == "token_refused"


def test_the_token_of_one_task_does_not_open_another_with_its_id_swapped(house, task):
    other = make_task(house)
    forged = tokens.task_token(task).replace(task.pk, other.pk)
    assert Sandbox(other, forged).call("GET", "spec").status_code == 401


def test_a_session_is_no_key_to_the_internal_api(house, task):
    client = Client(raise_request_exception=False)
    client.force_login(house.user())
    assert client.get("/internal/v1/spec").status_code == 401


@pytest.mark.parametrize("presence", [Presence.LOST, Presence.TERMINATED, Presence.RECLAIMED])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_after_the_sandbox_is_gone_every_route_is_gone(house, presence, method, path):
    status = Status.COMPLETED
    response = Sandbox(make_task(house, status=status, presence=presence)).call(method, path)
    assert response.status_code == 410
    assert response.json()["code"] == "token_ended"


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
def test_an_ended_task_delivers_nothing_but_still_archives_and_beats(house, status):
    ended = make_task(house, status=status)
    sandbox = Sandbox(ended)
    assert sandbox.call("POST", "deliveries").status_code == 410
    assert sandbox.call("PUT", "deliveries/dlv_1/bundle").status_code == 410
    assert sandbox.call("GET", "spec").status_code == 410
    assert sandbox.upload(f"artefacts/{sha(b'x')}", b"x").status_code == 201
    assert sandbox.call("POST", "heartbeat", b"{}").status_code == 400


def test_a_task_that_does_not_run_yet_reads_its_specification_but_delivers_nothing(house):
    early = Sandbox(make_task(house, status=Status.PROVISIONING))
    assert early.call("GET", "spec").status_code == 200
    assert early.call("POST", "deliveries").status_code == 410


def test_the_download_token_reads_the_specification_and_nothing_else(house, task):
    reader = Sandbox(task, tokens.task_token(task, tokens.Audience.MATERIALISE))
    assert reader.call("GET", "spec").status_code == 200
    assert reader.call("POST", "deliveries").status_code == 401
    assert reader.call("PUT", f"artefacts/{'a' * 64}").status_code == 401


def test_another_method_is_refused_by_name(sandbox):
    response = sandbox.call("DELETE", "spec")
    assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed")


def test_an_unknown_route_answers_a_problem(sandbox):
    response = sandbox.call("GET", "nothing/here")
    assert (response.status_code, response["Content-Type"]) == (404, "application/problem+json")


def test_every_problem_carries_the_request_id(sandbox):
    response = sandbox.call("GET", "nothing/here")
    assert response.json()["request_id"] == response["X-Request-Id"]


def test_a_sandbox_that_calls_too_often_is_told_when_to_come_back(sandbox, monkeypatch):
    monkeypatch.setitem(throttles.RATES, "sandbox", throttles.Rate(2))
    codes = [sandbox.call("GET", "spec").status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    response = sandbox.call("GET", "spec")
    assert int(response["Retry-After"]) >= 1


def test_one_sandbox_that_calls_too_often_does_not_stop_another(house, sandbox, monkeypatch):
    monkeypatch.setitem(throttles.RATES, "sandbox", throttles.Rate(1))
    for _ in range(3):
        sandbox.call("GET", "spec")
    assert Sandbox(make_task(house)).call("GET", "spec").status_code == 200


def test_a_cache_that_is_away_stops_no_sandbox(sandbox, settings):
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
    }
    assert sandbox.call("GET", "spec").status_code == 200


def test_the_internal_routes_are_not_in_the_public_schema():
    from drf_spectacular.generators import SchemaGenerator

    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    assert not [path for path in paths if "internal" in path]


# --- specification, heartbeat ---


def test_the_specification_is_given_byte_for_byte(task, sandbox):
    response = sandbox.call("GET", "spec")
    assert response.content == bytes(task.specification)
    assert f"sha256:{sha(response.content)}" == task.specification_digest


def beat(**changes: Any) -> bytes:
    values: dict[str, Any] = {
        "instance": "instance-1",
        "epoch": "e1",
        "boot": 1,
        "round": 1,
        "beat": 1,
        "head": Head(seq=1, chain="c"),
        "graph": GraphState.RUNNING,
        "ready": True,
    }
    return codec.encode(Heartbeat(**values | changes))


def test_a_heartbeat_is_answered_with_what_is_wanted(sandbox):
    response = sandbox.call("POST", "heartbeat", beat())
    answer = codec.decode(response.content, HeartbeatAnswer)
    assert (response.status_code, answer.status, answer.round) == (200, "running", 1)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"nonsense", b"\xff", b'{"instance": 1}', b"[" * 100_000])
def test_a_malformed_heartbeat_is_a_problem_and_no_more(sandbox, data):
    response = sandbox.call("POST", "heartbeat", data)
    assert response.status_code == 400
    assert response.json()["code"] == "malformed"


def test_a_heartbeat_with_members_of_a_later_protocol_is_taken(sandbox):
    data = json.loads(beat()) | {"later": {"a": 1}}
    assert sandbox.call("POST", "heartbeat", json.dumps(data).encode()).status_code == 200


@pytest.mark.parametrize(("size", "status"), [(MIB, 400), (MIB + 1, 413), (5 * MIB, 413)])
def test_a_body_has_at_most_one_mebibyte(sandbox, size, status):
    assert sandbox.call("POST", "heartbeat", b"x" * size).status_code == status


# --- artefacts ---


def test_an_artefact_arrives_in_chunks_and_is_kept_by_its_digest(task, sandbox):
    data = bytes(range(256)) * 10_000
    response = sandbox.upload(f"artefacts/{sha(data)}", data, name="report.bin")
    assert response.json() == {"offset": len(data), "complete": True}
    from tasks_app.services import archive

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


# --- deliveries ---


def request_for(task: Task, bundle: bytes = b"bundle", **changes: Any) -> DeliveryRequest:
    values: dict[str, Any] = {
        "key": f"{task.pk}:deliver:1:push",
        "node": "deliver",
        "generation": 1,
        "round": 1,
        "base_commit": task.base_commit,
        "commit": "b" * 40,
        "bundle_digest": f"sha256:{sha(bundle)}",
        "bundle_size": len(bundle),
    }
    return DeliveryRequest(**values | changes)


def test_a_delivery_is_taken_uploaded_and_asked_after(task, sandbox):
    taken = codec.decode(sandbox.call("POST", "deliveries", codec.encode(request_for(task))).content, DeliveryAnswer)
    assert (taken.state, taken.offset) == (DeliveryState.RECEIVED, 0)
    first = sandbox.call("PUT", f"deliveries/{taken.id}/bundle", b"bun", offset=0, size=6)
    assert codec.decode(first.content, DeliveryAnswer).offset == 3
    wrong = sandbox.call("PUT", f"deliveries/{taken.id}/bundle", b"bun", offset=0, size=6)
    assert (wrong.status_code, wrong.json()["offset"]) == (409, 3)
    sandbox.call("PUT", f"deliveries/{taken.id}/bundle", b"dle", offset=3, size=6)
    stands = codec.decode(sandbox.call("GET", f"deliveries/{taken.id}").content, DeliveryAnswer)
    assert stands.state is DeliveryState.QUEUED


def test_a_delivery_of_another_commit_under_the_same_key_is_refused(task, sandbox):
    sandbox.call("POST", "deliveries", codec.encode(request_for(task)))
    response = sandbox.call("POST", "deliveries", codec.encode(request_for(task, commit="c" * 40)))
    assert (response.status_code, response.json()["code"]) == (422, "delivery_key_reused")


def test_a_delivery_of_another_task_answers_404(house, task, sandbox):
    taken = sandbox.call("POST", "deliveries", codec.encode(request_for(task))).json()
    stranger = Sandbox(make_task(house))
    assert stranger.call("GET", f"deliveries/{taken['id']}").status_code == 404
    assert stranger.call("PUT", f"deliveries/{taken['id']}/bundle", b"x", offset=0, size=1).status_code == 404


def test_a_delivery_forged_for_another_task_is_refused(house, task, sandbox):
    other = make_task(house)
    response = sandbox.call("POST", "deliveries", codec.encode(request_for(other)))
    assert (response.status_code, response.json()["code"]) == (422, "delivery_key")


# --- archive ---


def test_the_final_snapshot_is_stored_and_answers(task, sandbox):
    from tasks_app.services import archive

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
    from tasks_app.services import archive

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
