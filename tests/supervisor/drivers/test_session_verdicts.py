"""Results, usage and reports of a session: pure, bounded, told as they are."""

from pathlib import Path
from typing import Any

import pytest

from sandbox_supervisor.drivers import reports, results
from sandbox_supervisor.drivers.jsonrpc import RpcError
from sandbox_supervisor.drivers.usage import Usage

# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "result"),
    [
        ('Done.\n```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": 1} and then {"b": {"c": 2}} bye', {"b": {"c": 2}}),
        ('first {"a": 1}, a broken {"b": ', {"a": 1}),
        ('[{"a": 1}]', {"a": 1}),
        ("nothing here", None),
        ("{}", None),
        ("", None),
        ("{" * 50_000, None),
        ('{"a":' * 5_000, None),
        ('x{"text": "a } in { a string"}', {"text": "a } in { a string"}),
    ],
)
def test_the_last_json_object_of_a_message_is_the_result(message: str, result: dict[str, Any] | None):
    assert results.last_object(message) == result


def test_only_the_end_of_a_long_message_is_looked_at():
    assert results.last_object('{"a": 1}' + " " * results.RESULT_LIMIT) is None
    assert results.last_object(" " * 10**6 + '{"a": 1}') == {"a": 1}


def test_a_result_file_is_read_without_following_a_link(tmp_path: Path):
    (tmp_path / "result").write_text('{"a": 1}')
    (tmp_path / "link").symlink_to(tmp_path / "result")
    (tmp_path / "big").write_text('{"a": "' + "x" * results.RESULT_LIMIT + '"}')
    (tmp_path / "list").write_text("[1]")
    assert results.from_file(str(tmp_path / "result")) == {"a": 1}
    for name in ("link", "big", "list", "gone"):
        assert results.from_file(str(tmp_path / name)) is None


def test_problems_name_the_place_and_are_few():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]}
    assert results.problems(schema, {"n": 1, "m": 2}) == []
    assert any(problem.startswith("$.n:") for problem in results.problems(schema, {"n": "x"}))
    assert len(results.problems({"items": {"type": "string"}}, [1] * 100)) == results.PROBLEMS


@pytest.mark.parametrize(
    "schema", [{"$ref": "http://127.0.0.1:1/x"}, {"$ref": "#/nowhere"}, {"$ref": "file:///etc/passwd"}]
)
def test_references_never_leave_the_schema(schema: dict[str, Any]):
    assert "cannot be used" in results.problems(schema, {})[0]


# --- usage -----------------------------------------------------------------------------------------------------------


def test_usage_is_taken_from_wherever_an_agent_says_it():
    usage = Usage()
    assert usage.answered({"usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}})
    assert usage.updated(
        {"sessionUpdate": "usage_update", "used": 100, "size": 1000, "cost": {"amount": 0.25, "currency": "USD"}}
    )
    tokens = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    assert usage.totals == tokens | {"context_used": 100, "context_size": 1000, "cost": 0.25}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"_meta": {"quota": {"token_count": {"input_tokens": 3, "output_tokens": 1}}}}, id="quota"),
        pytest.param({"usage": {"inputTokens": 3, "outputTokens": 1}}, id="usage"),
    ],
)
def test_what_an_answer_tells_is_of_its_turn(answer: dict[str, Any]):
    """Seen: claude-agent-acp 0.49 tells 300 for a turn of three requests, and then 100 for one of one."""
    usage = Usage()
    for _ in range(2):
        usage.turn()
        usage.answered(answer)
    assert usage.totals == {"input_tokens": 6, "output_tokens": 2}


def test_usage_of_each_request_is_added_up_and_not_once_more_by_the_answer():
    """Seen: Qwen Code 0.15 tells it with an empty message after each request of the model."""
    usage = Usage()
    said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": ""}}
    told = said | {"_meta": {"usage": {"inputTokens": 100, "outputTokens": 20}, "durationMs": 5}}
    usage.turn()
    assert usage.updated(told)
    assert usage.updated(told)
    assert not usage.answered({"usage": {"inputTokens": 200, "outputTokens": 40}})
    assert usage.totals == {"input_tokens": 200, "output_tokens": 40}


@pytest.mark.parametrize(
    "answer",
    [{}, {"usage": None}, {"usage": {"inputTokens": "many"}}, {"usage": {"inputTokens": -1, "outputTokens": True}},
     {"_meta": {"quota": 3}}, {"usage": {"inputTokens": float("inf")}}, {"usage": {"inputTokens": 1e300}}],
)  # fmt: skip
def test_usage_that_makes_no_sense_is_left_out(answer: dict[str, Any]):
    usage = Usage()
    assert not usage.answered(answer)
    assert usage.totals == {}


# --- reports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "code"),
    [("max_tokens", "max_tokens"), ("refusal", "refusal"), ("max_turn_requests", "max_turn_requests"),
     ("cancelled", "cancelled"), ("something_new", "stop_reason")],
)  # fmt: skip
def test_a_turn_that_did_not_end_well_is_the_agents_error(stop: str, code: str):
    report = reports.of_stop(stop, cancelled=False)
    assert (report.outcome, report.failure_class, report.code) == ("failed", "agent_error", code)


@pytest.mark.parametrize(
    ("error", "failure_class", "retry_after"),
    [
        (RpcError(-32603, "429 Too Many Requests, retry after 30 s"), "rate_limited", 30.0),
        (RpcError(429, "slow"), "rate_limited", None),
        (RpcError(-32603, "Internal", {"error": "rate_limit_exceeded"}), "rate_limited", None),
        (RpcError(-32000, "Authentication required"), "agent_error", None),
    ],
)
def test_an_error_is_a_rate_limit_when_it_says_so(error: RpcError, failure_class: str, retry_after: float | None):
    report = reports.of_error(error)
    assert (report.failure_class, report.retry_after) == (failure_class, retry_after)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"message": "status 401", "codex_error_info": "other"}, "Internal error (status 401)"),
        ({"details": "Missing API key"}, "Internal error (Missing API key)"),
        ({"errorKind": "authentication_failed"}, 'Internal error {"errorKind": "authentication_failed"}'),
        ("KEY is not set", "Internal error KEY is not set"),
        (None, "Internal error"), ({}, "Internal error"), ([1], "Internal error"),
    ],
)  # fmt: skip
def test_an_error_is_told_with_the_words_that_its_data_holds(data: Any, told: str):
    assert reports.of_error(RpcError(-32603, "Internal error", data)).message == (
        f"The agent answered with error -32603: {told}"
    )


def test_what_to_do_follows_the_words_of_an_agent_that_wants_to_be_signed_in():
    error = RpcError(-32000, "Authentication required", {"authMethods": [{"id": "x"}]})
    message = reports.of_error(error, " Do this.").message
    assert message == "The agent wants to be signed in: Authentication required. Do this."


def test_last_words_are_quoted_where_the_failure_does_not_explain_itself():
    report = reports.of_exit(1, begun=False)
    report.quote(b"one\ntwo\n\n\x1b[31mthree\x1b[0m\n \xff four\n")
    assert report.message == (
        "The agent ended before it had opened a session, with exit code 1. It last wrote: two / three / \ufffd four"
    )
    report = reports.of_stop("refusal", cancelled=False)
    report.quote(b"noise")
    assert report.message == "The agent refused to go on."


@pytest.mark.parametrize(
    ("code", "failure_class", "name"),
    [(0, "agent_error", "crash"), (3, "agent_error", "crash"), (-11, "agent_error", "crash"), (-9, "infra", "killed"),
     (None, "agent_error", "crash")],
)  # fmt: skip
def test_an_agent_that_ended_in_its_turn_crashed_or_was_killed(code: int | None, failure_class: str, name: str):
    report = reports.of_exit(code)
    assert (report.failure_class, report.code) == (failure_class, name)
