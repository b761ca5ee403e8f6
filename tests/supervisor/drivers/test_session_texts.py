"""Updates and questions: pure, bounded, told as they are."""

import json
from typing import Any

import pytest

from sandbox_supervisor.drivers import questions, updates
from sandbox_supervisor.drivers.updates import Transcript
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
