"""Updates, questions, results, usage and reports: pure, bounded, told as they are."""

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox_supervisor.drivers import questions, reports, results, updates
from sandbox_supervisor.drivers.jsonrpc import RpcError
from sandbox_supervisor.drivers.updates import Transcript
from sandbox_supervisor.drivers.usage import Usage
from sandbox_supervisor.protocol.events import EventKind


def chunk(text, kind: str = "agent_message_chunk", **more) -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, **more}


# --- updates ---------------------------------------------------------------------------------------------------------


def test_chunks_of_one_message_share_an_id_until_something_else_comes_between():
    told = Transcript()
    ids = []
    for update in (
        chunk("a"), chunk("b"), chunk("t", "agent_thought_chunk"), chunk("c"),
        {"sessionUpdate": "tool_call", "toolCallId": "1"},
        chunk("d"), chunk("e", messageId="x"), chunk("f", messageId="x"),
    ):  # fmt: skip
        ids += [data["id"] for kind, data in told.take(update) if kind is EventKind.SESSION_MESSAGE]
    assert ids == ["m1", "m1", "m3", "m4", "ax", "ax"]
    assert told.final == "ef"


def test_an_agent_that_repeats_the_prompt_is_not_told_to_have_said_it():
    """As Mistral Vibe 3.0 does."""
    told = Transcript()
    told.turn("Do it.\n")
    assert told.take(chunk("Do it.\n", "user_message_chunk")) == []
    assert len(told.take(chunk("Do it.\n"))) == len(told.take(chunk("More", "user_message_chunk"))) == 1


def test_a_long_chunk_is_split_and_its_end_kept_as_final():
    told = Transcript()
    events = told.take(chunk("x" * (updates.PIECE * 2 + 5)))
    assert [len(data["text"]) for _, data in events] == [updates.PIECE, updates.PIECE, 5]
    told.take(chunk("y" * updates.FINAL_LIMIT))
    assert told.final == "y" * updates.FINAL_LIMIT


def test_a_tool_patch_has_only_what_was_sent_and_that_bounded():
    told = Transcript()
    ((kind, data),) = told.take({"sessionUpdate": "tool_call_update", "toolCallId": "c" * 1000, "status": "completed"})
    assert kind is EventKind.SESSION_TOOL
    assert set(data) == {"id", "status"}
    assert len(data["id"]) <= 200
    huge = {"type": "content", "content": {"type": "text", "text": "z" * 10**6}}
    patch = updates.tool({"toolCallId": "1", "title": "t" * 10**5, "kind": "mine bitcoin", "content": [huge] * 100})
    assert patch["kind"] == "other"
    assert len(patch["content"]) == updates.ITEMS
    assert len(json.dumps(patch)) < 200_000
    assert "left out" in patch["content"][0]["text"]


def test_diffs_and_places_of_a_tool_call_are_kept():
    diff = {"type": "diff", "path": "a.py", "oldText": None, "newText": "x"}
    patch = updates.tool(
        {"toolCallId": "1", "content": [diff], "locations": [{"path": "a.py", "line": 3}, {"line": 1}, 5]}
    )
    assert patch["content"] == [{"type": "diff", "path": "a.py", "old": "", "new": "x", "line": 1}]
    assert patch["locations"] == [{"path": "a.py", "line": 3}]


def edit(old, new):
    (shown,) = updates.tool({"toolCallId": "1", "content": [{"type": "diff", "oldText": old, "newText": new}]})[
        "content"
    ]
    return shown["line"], shown["old"], shown["new"]


def test_of_an_edit_the_lines_that_differ_are_told_with_three_around_them():
    lines = [f"line {number}" for number in range(1, 5001)]
    changed = [*lines[:2499], "another", "and one more", *lines[2500:]]
    around = "line 2497\nline 2498\nline 2499\n{}\nline 2501\nline 2502\nline 2503"
    assert edit("\n".join(lines), "\n".join(changed)) == (
        2497,
        around.format("line 2500"),
        around.format("another\nand one more"),
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [("", "a"), ("a", ""), ("a\n", "a"), ("a\na", "a\na\na"), ("same\n", "same\n"), ("a\r\nb", "a\nb")],
)
def test_a_short_edit_is_told_whole(old, new):
    assert edit(old, new) == (1, old, new)


def test_an_edit_of_no_text_at_all_is_an_empty_one():
    assert edit(None, 3) == (1, "", "")


def test_places_are_told_as_seen_from_the_working_directory():
    diff = {"type": "diff", "path": "/w/tree/a.py", "oldText": "", "newText": "x"}
    call = {
        "toolCallId": "1",
        "title": "Write /w/tree/a.py",
        "content": [diff],
        "locations": [{"path": "/w/tree/a.py"}],
    }
    patch = updates.tool(call, "/w/tree")
    assert (patch["title"], patch["content"][0]["path"]) == ("Write a.py", "a.py")
    assert patch["locations"] == [{"path": "a.py"}]
    assert updates.tool({"toolCallId": "1", "title": "cat /w/treetop/x"}, "/w/tree")["title"] == "cat /w/treetop/x"


def called(told: Transcript, **update) -> list[dict[str, Any]] | None:
    ((_, data),) = told.take({"sessionUpdate": "tool_call_update", "toolCallId": "c", **update})
    return data.get("content")


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        ({"stdout": "a", "aggregated_output": "ab", "exit_code": 0}, [{"type": "text", "text": "ab"}]),
        ({"aggregated_output": "no", "exit_code": 3}, [{"type": "text", "text": "no\n[exit code 3]"}]),
        ("File created", [{"type": "text", "text": "File created"}]),
        ({"stdout": ""}, []), ({"exit_code": 0}, None), (None, None), (["x"], None),
    ],
)  # fmt: skip
def test_what_a_command_printed_is_found_where_it_is_told_in_the_raw_output_alone(raw: Any, content: Any):
    """As codex-acp 0.16 does for every command."""
    assert called(Transcript(), status="completed", rawOutput=raw) == content


def test_raw_output_takes_the_place_neither_of_content_nor_of_an_edit_that_is_shown():
    text = {"type": "content", "content": {"type": "text", "text": "seen"}}
    assert called(Transcript(), content=[text], rawOutput="raw") == [{"type": "text", "text": "seen"}]
    told = Transcript()
    called(told, content=[{"type": "diff", "path": "a", "oldText": "", "newText": "x"}])
    assert called(told, status="completed", rawOutput="File created") is None


def test_a_permission_requests_own_words_are_no_content_of_its_call():
    words = {"type": "content", "content": {"type": "text", "text": "Available decisions: approved, abort"}}
    ((_, data),) = Transcript().announce({"toolCallId": "c", "title": "ls", "content": [words]})
    assert (data["title"], data["status"], data["content"]) == ("ls", "pending", [])


def test_only_so_many_calls_are_remembered():
    told = Transcript()
    for number in range(updates.CALLS + 1):
        told.take({"sessionUpdate": "tool_call", "toolCallId": str(number)})
    assert told.announce({"toolCallId": "0"})
    assert told.announce({"toolCallId": "200"}) == []


def test_plans_are_bounded_and_their_words_checked():
    told = Transcript()
    entries = [{"content": "c", "status": "done!", "priority": 9}, "x", {"content": 3, "status": "completed"}] + [
        {}
    ] * 500
    ((_, data),) = told.take({"sessionUpdate": "plan", "entries": entries})
    assert data["entries"][0] == {"content": "c", "status": "pending", "priority": "medium"}
    assert data["entries"][1]["status"] == "completed"
    assert len(data["entries"]) == updates.PLAN_ENTRIES


@pytest.mark.parametrize(
    "update",
    [
        {}, {"sessionUpdate": None}, {"sessionUpdate": "available_commands_update"}, chunk(""), chunk(None), chunk(3),
        {"sessionUpdate": "agent_message_chunk"}, {"sessionUpdate": "agent_message_chunk", "content": [1]},
        {"sessionUpdate": "from_the_future", "x": 1}, {"sessionUpdate": ["tool_call"]}, {"sessionUpdate": {}},
    ],
)  # fmt: skip
def test_what_says_nothing_is_no_event(update: dict[str, Any]):
    assert Transcript().take(update) == []


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "tool_call"},
        {"sessionUpdate": "tool_call", "toolCallId": [], "status": [], "kind": {}, "title": 3, "content": [[], {}, 1]},
        {"sessionUpdate": "plan"},
        {"sessionUpdate": "plan", "entries": 3},
        {"sessionUpdate": "plan", "entries": [{"status": [], "priority": {}, "content": []}]},
    ],
)
def test_updates_without_their_fields_do_not_break(update: dict[str, Any]):
    assert len(Transcript().take(update)) == 1


def test_other_content_is_named():
    text = updates.content_text
    assert text({"type": "image", "data": "…"}) == "[image]"
    assert text({"type": "resource_link", "uri": "file:///x"}) == "[file:///x]"
    assert text({"type": "resource", "resource": {"uri": "u"}}) == "[u]"
    assert text({"type": 3}) == text("x") == ""


# --- questions -------------------------------------------------------------------------------------------------------

OPTIONS = [
    {"optionId": "once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


def test_a_permission_for_a_tool_call_never_announced_is_shown_with_its_input():
    call = {"toolCallId": "new", "title": "Run rm", "rawInput": {"command": "rm -rf /"}}
    asked = questions.permission({"toolCall": call, "options": OPTIONS}).asked("r1")
    assert (asked["kind"], asked["title"], asked["request_id"]) == ("permission", "Run rm", "r1")
    assert "rm -rf /" in asked["body"]
    assert [option["id"] for option in asked["options"]] == ["once", "always", "no"]


def test_a_permission_shows_what_is_decided_on_as_a_person_reads_it():
    call: dict[str, Any] = {
        "toolCallId": "c",
        "title": "Run /w/tree/x.sh",
        "rawInput": {"command": "set -e\nrm x", "limit": 3, "cwd": "/w/tree"},
    }
    asked = questions.permission({"toolCall": call, "options": OPTIONS}, "/w/tree")
    assert (asked.title, asked.body) == ("Run x.sh", "command: \nset -e\nrm x\nlimit: 3\ncwd: /w/tree")
    edit = {"type": "diff", "path": "/w/tree/a.py", "oldText": "a\nb\nc\n", "newText": "a\nB\nc\n"}
    call = {"toolCallId": "c", "content": [edit], "rawInput": {"content": "a\nB\nc\n"}}
    body = questions.permission({"toolCall": call, "options": OPTIONS}, "/w/tree").body
    assert body == "a.py\n a\n-b\n+B\n c"


def test_the_least_that_can_be_allowed_is_offered_first():
    """The page makes the first option its main button; Gemini CLI, Qwen Code and Claude offer "always" first."""
    offered = [OPTIONS[1], {"optionId": "x", "name": "Else"}, OPTIONS[2], OPTIONS[0]]
    assert [option["id"] for option in questions.permission({"options": offered}).options] == [
        "once",
        "always",
        "no",
        "x",
    ]


def test_the_fingerprint_covers_what_is_decided_on():
    one = questions.permission({"toolCall": {"title": "A"}, "options": OPTIONS})
    other = questions.permission({"toolCall": {"title": "B"}, "options": OPTIONS})
    assert one.asked("r1")["fingerprint"] == one.asked("r2")["fingerprint"] != other.asked("r1")["fingerprint"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"option": "once"}, {"outcome": "selected", "optionId": "once"}),
        ({"option": "forged"}, {"outcome": "cancelled"}),
        ({"declined": True}, {"outcome": "selected", "optionId": "no"}),
        ({"cancelled": True}, {"outcome": "cancelled"}),
        ({}, {"outcome": "cancelled"}),
    ],
)
def test_an_answer_selects_only_what_was_offered(answer: dict[str, Any], outcome: dict[str, Any]):
    question = questions.permission({"options": OPTIONS})
    assert questions.permission_outcome(question, answer) == {"outcome": outcome}


@pytest.mark.parametrize(
    ("policy", "answer"), [("ask", None), ("allow", {"option": "once"}), ("reject", {"option": "no"})]
)
def test_a_flows_policy_answers_for_the_person(policy: str, answer: dict[str, Any] | None):
    assert questions.by_policy(questions.permission({"options": OPTIONS}), policy) == answer


def test_a_policy_that_finds_no_fitting_option_cancels():
    assert questions.by_policy(questions.permission({"options": OPTIONS[:2]}), "reject") == {"cancelled": True}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"options": "x"},
        {"options": [1, {}, {"optionId": 3}, {"optionId": "x", "kind": []}]},
        {"toolCall": [], "options": None},
    ],
)
def test_a_permission_request_without_sense_is_still_a_question(params: dict[str, Any]):
    assert all(option["kind"] == "" for option in questions.permission(params).asked("r1")["options"])


def test_a_form_of_one_choice_can_be_answered_with_an_option():
    schema = {"type": "object", "properties": {"which": {"type": "string", "enum": ["a", "b"]}}}
    question = questions.elicitation({"mode": "form", "message": "Which?\n\nThink well.", "requestedSchema": schema})
    assert question is not None
    assert (question.title, question.body) == ("Which?", "Think well.")
    assert [option["id"] for option in question.options] == ["a", "b"]
    assert questions.elicitation_outcome(question, {"option": "b"}) == {"action": "accept", "content": {"which": "b"}}
    assert questions.elicitation_outcome(question, {"content": {"which": "a"}})["content"] == {"which": "a"}
    assert questions.elicitation_outcome(question, {"declined": True}) == {"action": "decline"}
    assert questions.elicitation_outcome(question, {"cancelled": True}) == {"action": "cancel"}


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "url", "url": "http://x"},
        {"mode": "form"},
        {"requestedSchema": 3},
        {"requestedSchema": {"x": "y" * 40_000}},
    ],
)
def test_a_form_that_cannot_be_shown_is_no_question(params: dict[str, Any]):
    assert questions.elicitation(params) is None


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
    told = chunk("") | {"_meta": {"usage": {"inputTokens": 100, "outputTokens": 20}, "durationMs": 5}}
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
