"""Every error of the API is a problem document with a code, a place and a way out; nothing is ever HTML."""

import json
from typing import Any

import pytest

from sandbox_supervisor.protocol.codec import DEEPEST
from tasks_app import problems
from tests.api.clients import Api
from tests.task_rows import make_house, make_task
from workspaces_app.rest import throttles
from workspaces_app.rest.parsing import read_json
from workspaces_app.states import Role, Scope

pytestmark = pytest.mark.django_db


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert (document["status"], document["code"]) == (status, code)
    assert document["title"]
    assert document["detail"]
    assert document["type"] == f"urn:caisson:problem:{code}"
    assert document["request_id"] == response["X-Request-Id"]
    return document


@pytest.mark.parametrize("path", ["tasks", "me", "policy", "flows", "tasks/tsk_x/graph", "schemas/flow.v1.json"])
def test_somebody_anonymous_is_asked_to_sign_in(path):
    response = Api.anonymous().get(path)
    problem(response, 401, "unauthenticated")
    assert response["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("token", ["nonsense", "csn_abc_def", "cst_tsk.k.mac", "csn_" + "x" * 5000, "csn_ü_x", ""])
def test_a_token_that_is_not_ours_is_refused(house, token):
    problem(Api.of_text(token).get("me"), 401, "unauthenticated")


def test_a_wrong_token_never_falls_back_to_the_session(house):
    api = Api.of_user(house.user())
    assert api.get("me").status_code == 200
    problem(api.get("me", authorization="Bearer nonsense"), 401, "unauthenticated")
    problem(api.get("me", authorization="Basic dXNlcjpwYXNz"), 401, "unauthenticated")


def test_a_path_that_does_not_exist_is_a_problem(api):
    problem(api.get("nothing/here"), 404, "not_found")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE"])
def test_a_method_that_is_not_offered_is_refused_with_those_that_are(api, method):
    response = api.call(method, "tasks")
    problem(response, 405, "method_not_allowed")
    assert "GET" in response["Allow"]


def test_a_write_from_a_page_without_the_form_token_is_refused(house, task):
    strange = Api.of_user(house.user(), form_token=False)
    problem(strange.post(f"tasks/{task.pk}/cancel"), 403, "csrf_failed")
    assert strange.get(f"tasks/{task.pk}").json()["cancel_requested_at"] is None


def test_a_token_needs_no_form_token(house, task):
    assert Api.of_token(house.members[Role.OPERATOR]).post(f"tasks/{task.pk}/cancel").status_code == 202


def sent(api: Api, data: bytes, content_type: str = "application/json") -> Any:
    return api.client.generic("POST", "/api/v1/tasks:validate", data, content_type=content_type, headers=api.headers)


YEARS = 10**9  # seconds of a window that does not end during a test
NESTED = {"lists": (b"[", b"]"), "objects": (b'{"a":', b"}")}


@pytest.mark.parametrize(
    "body",
    [
        b"{nonsense",
        b"\xef\xbb\xbf{}",
        b'{"brief":"\xe9"}',
        '{"brief":"é"}'.encode("utf-16"),
        b'{"inputs":{"a":NaN}}',
        b'{"inputs":{"a":1e999}}',
        b'{"inputs":{"a":' + b"9" * 5000 + b"}}",
        rb'{"title":"\ud800"}',
        rb'{"\ud800":1}',
        rb'{"flow":"\udfff"}',
        b'{"flow":"work","flow":"other"}',
        b'{"inputs":{"a":[{"b":1,"b":1}]}}',
    ],
)
def test_a_body_that_is_no_strict_json_is_malformed(api, body):
    assert problem(sent(api, body), 400, "malformed")["detail"].startswith("The body is no strict JSON: ")


@pytest.mark.parametrize("depth", [65, 5_000, 200_000])
@pytest.mark.parametrize("kind", NESTED)
def test_a_body_that_is_nested_without_end_is_malformed(api, kind, depth):
    opening, closing = NESTED[kind]
    problem(sent(api, opening * depth + b"1" + closing * depth), 400, "malformed")


@pytest.mark.parametrize("kind", NESTED)
def test_what_is_nested_as_deep_as_allowed_is_read(kind):
    opening, closing = NESTED[kind]
    body = opening * DEEPEST + b"1" + closing * DEEPEST
    assert read_json(body) == json.loads(body)


def test_a_body_of_another_type_is_unsupported(api):
    said = problem(sent(api, b"a=b", "text/plain"), 415, "unsupported_media_type")
    assert "Content-Type: application/json" in said["detail"]
    problem(sent(api, b"a=b", "application/x-www-form-urlencoded"), 415, "unsupported_media_type")


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"5", b"null", b"true"])
def test_a_body_that_is_no_object_is_refused(api, body):
    document = problem(sent(api, body), 400, "invalid_input")
    assert document["errors"][0]["code"] == "not_an_object"


@pytest.mark.parametrize("path", ["tasks", "me", "repositories", "flows", "livez"])
def test_the_head_of_an_answer_is_what_the_whole_would_have(api, path):
    place = f"/{path}" if path == "livez" else path
    head, whole = api.call("HEAD", place), api.get(place)
    assert (head.status_code, head.content) == (whole.status_code, b"") == (200, b"")
    assert head["Content-Type"] == whole["Content-Type"]


def test_a_body_beyond_the_limit_is_too_large(api):
    response = api.post("tasks:validate", {"brief": "x" * (3 * 1024 * 1024)})
    assert "2 MiB" in problem(response, 413, "too_large")["detail"]


def test_a_word_that_is_none_of_the_possible_ones_is_answered_with_those(api):
    said = problem(api.get("tasks?status=done"), 400, "invalid_input")["errors"]
    assert said[0]["detail"].endswith("allowed: pending, provisioning, running, completed, failed, cancelled.")
    said = problem(api.post("tokens", {"label": "ci", "scopes": ["reed"]}), 400, "invalid_input")["errors"]
    assert said[0]["detail"].endswith("allowed: read, tasks, flows, policy, workspace.")


def test_unknown_members_are_refused_with_their_place_and_a_suggestion(api):
    document = problem(api.post("tasks:validate", {"repositry": "project", "flow": "work"}), 400, "invalid_input")
    by_place = {error["pointer"]: error for error in document["errors"]}
    assert by_place["/repositry"]["code"] == "unknown"
    assert "repository" in by_place["/repositry"]["detail"]
    assert by_place["/repository"]["code"] == "missing"


def test_a_flood_of_unknown_members_gets_no_flood_of_problems(api):
    body = {f"member_{number}": 0 for number in range(20_000)}
    response = api.post("tasks:validate", body)
    document = problem(response, 400, "invalid_input")
    named = [error["pointer"] for error in document["errors"]]
    assert named[:2] == ["/member_0", "/member_1"]
    assert {"/repository", "/flow"} <= set(named)
    assert len(named) < 100


def test_every_wrong_member_is_named_at_once(api):
    document = problem(
        api.post("tasks:validate", {"repository": 5, "flow": "", "inputs": [], "x": 1}), 400, "invalid_input"
    )
    assert {error["pointer"] for error in document["errors"]} == {"/repository", "/flow", "/inputs", "/x"}


def test_a_wrong_member_inside_another_is_named_by_its_path(api, task):
    document = problem(
        api.post(f"tasks/{task.pk}/commands", {"verb": "rerun", "nodes": ["a", 5]}), 400, "invalid_input"
    )
    assert document["errors"][0]["pointer"] == "/nodes/1"


@pytest.mark.parametrize(
    ("query", "parameter"),
    [("limt=5", "limt"), ("limit=0", "limit"), ("limit=201", "limit"), ("limit=x", "limit"), ("cursor=%ff", "cursor"),
     ("cursor=abc", "cursor"), ("status=done", "status"), ("limit=1&limit=2", "limit")],
)  # fmt: skip
def test_a_query_that_cannot_be_used_names_its_parameter(api, query, parameter):
    document = problem(api.get(f"tasks?{query}"), 400, "invalid_input")
    assert document["errors"][0]["parameter"] == parameter


def test_a_near_miss_of_a_parameter_gets_a_suggestion(api):
    assert "'limit'" in api.get("tasks?limt=5").json()["errors"][0]["detail"]


@pytest.mark.parametrize("path", ["repositories", "tokens", "flows"])
def test_a_workspace_that_is_not_there_is_named_where_it_stood(api, path):
    document = problem(api.get(f"{path}?workspace=nothing"), 404, "workspace_unknown")
    assert document["errors"][0]["parameter"] == "workspace"
    asked: dict[str, dict[str, object]] = {
        "repositories": {"slug": "x", "clone_url": "/x"},
        "tokens": {"label": "x", "scopes": ["read"]},
    }
    body = asked.get(path, {"source": "name: x"})
    document = problem(api.post(path, {**body, "workspace": "nothing"}), 404, "workspace_unknown")
    assert document["errors"][0]["pointer"] == "/workspace"


def test_a_route_without_parameters_refuses_any(api, task):
    problem(api.get(f"tasks/{task.pk}?verbose=1"), 400, "invalid_input")


def test_a_task_of_another_workspace_does_not_exist(task):
    stranger = Api.of_user(make_house("other").user(Role.ADMIN))
    there = stranger.get(f"tasks/{task.pk}")
    nowhere = stranger.get("tasks/tsk_nothing")
    assert problem(there, 404, "task_unknown")["title"] == problem(nowhere, 404, "task_unknown")["title"]


def test_a_role_that_is_too_low_is_forbidden_and_named(house, task):
    document = problem(Api.of_user(house.user(Role.VIEWER)).post(f"tasks/{task.pk}/cancel"), 403, "role_too_low")
    assert (document["role"], document["needed"]) == ("viewer", "operator")


def test_a_scope_that_is_missing_is_forbidden_and_named(house, task):
    api = Api.of_token(house.members[Role.ADMIN], Scope.READ)
    assert api.get(f"tasks/{task.pk}").status_code == 200
    document = problem(api.post(f"tasks/{task.pk}/cancel"), 403, "scope_missing")
    assert document["needed"] == "tasks"


def test_somebody_deactivated_is_nobody(house):
    user = house.user()
    api, token = Api.of_user(user), Api.of_token(house.members[Role.OPERATOR])
    user.is_active = False
    user.save()
    assert api.get("me").status_code == 401
    assert token.get("me").status_code == 401


def test_a_defect_of_ours_says_nothing_of_itself(api, task, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the secret is 12345")

    monkeypatch.setattr("tasks_app.api.tasks.task_record", broken)
    response = api.get(f"tasks/{task.pk}")
    document = problem(response, 500, "internal_error")
    assert "12345" not in response.content.decode()
    assert "request id" in document["detail"]


def test_a_database_that_is_locked_is_unavailable_and_may_be_asked_again(api, task, monkeypatch):
    from django.db import OperationalError

    def locked(*_: object, **__: object) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr("tasks_app.api.tasks.task_record", locked)
    response = api.get(f"tasks/{task.pk}")
    problem(response, 503, "unavailable")
    assert response["Retry-After"]


def test_every_answer_says_how_often_one_may_ask(api):
    response = api.get("tasks")
    assert int(response["RateLimit-Remaining"]) < int(response["RateLimit-Limit"])
    assert int(response["RateLimit-Reset"]) >= 1


def test_who_asks_too_often_is_told_when_to_come_back(api, monkeypatch):
    monkeypatch.setitem(throttles.RATES, "read", throttles.Rate(2, seconds=YEARS))
    responses = [api.get("tasks") for _ in range(3)]
    document = problem(responses[-1], 429, "throttled")
    assert int(responses[-1]["Retry-After"]) == document["retry_after"] >= 1
    assert responses[-1]["RateLimit-Remaining"] == "0"


def test_one_member_who_asks_too_often_stops_no_other(house, api, monkeypatch):
    monkeypatch.setitem(throttles.RATES, "read", throttles.Rate(1, seconds=YEARS))
    assert [api.get("tasks").status_code for _ in range(2)] == [200, 429]
    assert Api.of_user(house.user(Role.VIEWER)).get("tasks").status_code == 200


def test_many_tokens_of_one_member_ask_as_one(house, monkeypatch):
    monkeypatch.setitem(throttles.RATES, "read", throttles.Rate(2, seconds=YEARS))
    member = house.members[Role.OPERATOR]
    assert [Api.of_token(member).get("tasks").status_code for _ in range(3)] == [200, 200, 429]


def test_a_cache_that_is_away_stops_nobody(api, settings):
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
    }
    assert api.get("tasks").status_code == 200


def test_answers_are_not_kept_by_anybody_on_the_way(api, task):
    response = api.get(f"tasks/{task.pk}")
    assert response["Cache-Control"] == "no-store"
    assert {"Authorization", "Cookie"} <= {word.strip() for word in response["Vary"].split(",")}


def test_every_error_class_of_the_control_plane_has_a_status():
    from tasks_app import errors
    from tasks_app.errors import ControlPlaneError, IllegalMove

    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type)
        and issubclass(value, ControlPlaneError)
        and value not in {ControlPlaneError, IllegalMove}
    ]
    assert len(classes) > 8
    for kind in classes:
        assert problems.describe(kind("a sentence")) is not None, kind


def test_a_list_is_given_page_by_page_without_gap_or_repetition(house, api):
    made = [make_task(house).pk for _ in range(5)]
    seen, cursor = [], ""
    while True:
        body = api.get(f"tasks?limit=2&cursor={cursor}").json()
        seen += [task["id"] for task in body["data"]]
        cursor = body["next_cursor"]
        if cursor is None:
            break
    assert seen == sorted(made, reverse=True)


def test_a_row_added_meanwhile_does_not_shift_the_next_page(house, api):
    first = [make_task(house).pk for _ in range(3)]
    body = api.get("tasks?limit=2").json()
    make_task(house)
    rest = api.get(f"tasks?limit=2&cursor={body['next_cursor']}").json()
    assert [task["id"] for task in rest["data"]] == [sorted(first)[0]]
