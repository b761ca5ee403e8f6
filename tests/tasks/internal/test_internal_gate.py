"""Sandboxes call with the task token only, within its scope, in bounded pieces; errors are problems."""

import json
from typing import Any

import pytest
from django.test import Client

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import (
    DeliveryAnswer,
    DeliveryRequest,
    DeliveryState,
    Failure,
    Head,
    Heartbeat,
    HeartbeatAnswer,
)
from sandbox_supervisor.protocol.states import FailureClass, GraphState
from tasks_app.models import Task
from tasks_app.services import tokens
from tasks_app.states import Presence, Status
from tests.task_rows import make_task
from tests.tasks.internal.sandbox import MIB, Sandbox, sha
from workspaces_app.rest import throttles

pytestmark = pytest.mark.django_db


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
    monkeypatch.setitem(throttles.RATES, "sandbox", throttles.Rate(2, seconds=10**9))
    codes = [sandbox.call("GET", "spec").status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    response = sandbox.call("GET", "spec")
    assert int(response["Retry-After"]) >= 1


def test_one_sandbox_that_calls_too_often_does_not_stop_another(house, sandbox, monkeypatch):
    monkeypatch.setitem(throttles.RATES, "sandbox", throttles.Rate(1, seconds=10**9))
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


def test_an_end_whose_reason_holds_a_nul_is_taken_on_every_database(task, sandbox):
    why = Failure(failure_class=FailureClass.CHECK_FAILED, code="result", message="got a\0b", facts={"k\0": "\0"})
    assert sandbox.call("POST", "heartbeat", beat(graph=GraphState.FAILED, failure=why)).status_code == 200
    task.refresh_from_db()
    assert (task.status, task.failure["message"]) == (Status.FAILED, "got a\ufffdb")


def test_a_heartbeat_with_members_of_a_later_protocol_is_taken(sandbox):
    data = json.loads(beat()) | {"later": {"a": 1}}
    assert sandbox.call("POST", "heartbeat", json.dumps(data).encode()).status_code == 200


@pytest.mark.parametrize(("size", "status"), [(MIB, 400), (MIB + 1, 413), (5 * MIB, 413)])
def test_a_body_has_at_most_one_mebibyte(sandbox, size, status):
    assert sandbox.call("POST", "heartbeat", b"x" * size).status_code == status


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
