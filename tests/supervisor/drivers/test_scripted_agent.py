"""The scripted agent does what its playbook says, inside its tree, and says what it is."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox_supervisor.drivers.scripted import moves
from sandbox_supervisor.protocol.playbook import Edit, EditKind
from tests.supervisor.drivers.agents import verdict
from tests.supervisor.runner.stage import ATTEMPT, Stage, running, scripted, token, until


async def test_it_says_what_it_is(at: Stage):
    ran = await at.play({"say": "hello"})
    assert ran.told("session.started")[0]["agent"]["title"] == "Scripted agent (no model)"


async def test_it_tells_thinks_and_plans(at: Stage):
    ran = await at.play({"think": "hm"}, {"plan": [{"content": "one", "status": "completed"}]}, {"say": "done"})
    assert [event["text"] for event in ran.told("session.thought")] == ["hm"]
    assert ran.told("session.plan")[0]["entries"][0]["status"] == "completed"
    assert [event["text"] for event in ran.told("session.message")] == ["done"]


async def test_edits_and_runs_are_shown_as_tool_calls_and_change_the_tree(on_both: Stage):
    ran = await on_both.play(
        {"edit": {"path": "src/new.py", "content": "x = 1\n"}},
        {"edit": {"path": "readme.md", "replace": "hello", "with": "good day"}},
        {"edit": {"path": "readme.md", "append": "bye\n"}},
        {"run": {"command": "cat readme.md src/new.py; exit 3", "expect_exit": 3}},
        {"edit": {"path": "src/new.py", "delete": True}},
    )
    assert verdict(ran) == ("ok", None, None)
    assert (on_both.attempt().tree / "readme.md").read_text() == "good day\nbye\n"
    assert not (on_both.attempt().tree / "src/new.py").exists()
    calls = [event for event in ran.told("session.tool") if event["status"] == "completed"]
    changed = {"type": "diff", "path": "readme.md", "old": "hello\n", "new": "good day\n", "line": 1}
    assert calls[1]["content"] == [changed]
    assert calls[3]["content"][0]["text"] == "good day\nbye\nx = 1\n\n[exit code 3]"


async def test_a_result_is_the_last_message(at: Stage):
    ran = await at.play({"say": 'not this {"a": 1}'}, {"result": {"verdict": "good", "n": [1, 2]}})
    assert ran.exit["result"] == {"verdict": "good", "n": [1, 2]}


async def test_answers_are_put_into_later_texts_and_quoted_in_commands(at: Stage):
    ran = await at.play(
        {"ask": {"title": "Name?", "schema": {"type": "object", "properties": {"name": {"type": "string"}}}}},
        {"say": "Hello {{ answers[-1] }}, {{answers[0]}}"},
        {"edit": {"path": "who", "content": "{{ answers[0] }}"}},
        {"run": {"command": "echo {{ answers[0] }}"}},
        answers=lambda asked: {"content": {"name": "$(touch evil); 'x'"}},
    )
    assert ran.told("session.message")[0]["text"] == "Hello $(touch evil); 'x', $(touch evil); 'x'"
    assert (at.attempt().tree / "who").read_text() == "$(touch evil); 'x'"
    assert not (at.attempt().tree / "evil").exists()


async def test_an_answer_that_was_never_given_fails_the_step_by_number(at: Stage):
    ran = await at.play({"say": "ok"}, {"say": "{{ answers[3] }}"})
    assert verdict(ran) == ("failed", "agent_error", "agent_error")
    assert "step 1 (say)" in ran.exit["message"]


@pytest.mark.parametrize(("option", "answer"), [("Allow", "Allow"), ("Reject", "Reject")])
async def test_a_permission_is_asked_and_its_answer_kept(at: Stage, option: str, answer: str):
    ran = await at.play(
        {"permission": {"title": "May I?"}}, {"say": "{{ answers[-1] }}"}, answers=lambda asked: {"option": option}
    )
    assert ran.asked()[0]["kind"] == "permission"
    assert ran.told("session.message")[0]["text"] == answer


async def test_steps_wait_for_their_generation_attempt_and_prompt(at: Stage):
    ran = await at.play(
        {"say": "g1", "when": {"generation": 1}},
        {"say": "g2", "when": {"generation": [2, 3]}},
        {"say": "n2", "when": {"attempt": 2}},
        {"say": "p", "when": {"prompt_contains": "fix the test"}},
        {"say": "q", "when": {"prompt_contains": "nothing"}},
        generation=2,
        n=2,
        prompt="Please fix the test.",
    )
    assert [event["text"] for event in ran.told("session.message")] == ["g2", "n2", "p"]


async def test_a_later_prompt_plays_only_the_steps_that_ask_for_it(at: Stage):
    ran = await at.play(
        {"say": "first"},
        {"result": {"n": 1}, "when": {"prompt_contains": "did not end with the result"}},
        result_schema={"type": "object", "required": ["n"]},
    )
    assert ran.exit["result"] == {"n": 1}
    assert [event["text"] for event in ran.told("session.message")].count("first") == 1


async def test_a_playbook_with_mistakes_is_refused_with_all_of_them(at: Stage):
    ran = await at.play({"sya": "hello"}, {"edit": {"path": "../x", "content": ""}}, {"sleep": -1})
    assert verdict(ran) == ("failed", "agent_error", "agent_error")
    for part in ("playbook[0].sya: there is no verb 'sya' (did you mean 'say'?)", "playbook[1].edit.path", "[2].sleep"):
        assert part in ran.exit["message"]


async def test_a_command_that_ends_otherwise_than_expected_fails_the_agent(at: Stage):
    ran = await at.play({"run": {"command": "exit 4", "expect_exit": 0}})
    assert "ended with exit code 4, not 0" in ran.exit["message"]
    assert ran.told("session.tool")[-1]["status"] == "failed"


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"crash": 7}, ("failed", "agent_error", "crash")),
        ({"bad_json": "}{"}, ("failed", "protocol", "bad_json")),
        ({"bad_json": "\x1b[2J\x07"}, ("failed", "protocol", "bad_json")),
        ({"flood": {"bytes": 20 * 1024 * 1024, "stream": "stdout"}}, ("failed", "protocol", "line_too_long")),
        ({"edit": {"path": "readme.md", "replace": "absent", "with": "x"}}, ("failed", "agent_error", "agent_error")),
        ({"edit": {"path": "gone", "delete": True}}, ("failed", "agent_error", "agent_error")),
        ({"sleep": 0}, ("failed", "agent_error", "empty")),
    ],
)
async def test_misbehaviour_on_order(at: Stage, step: dict[str, Any], expected: tuple[Any, ...]):
    assert verdict(await at.play(step)) == expected


@pytest.mark.parametrize("stream", ["stderr", "message"])
async def test_a_flood_arrives_whole(at: Stage, stream: str):
    size = 3 * 1024 * 1024
    ran = await at.play({"flood": {"bytes": size, "stream": stream}}, {"say": "x"})
    told = sum(len(event["text"]) for event in ran.told("session.message")) - 1
    assert (len(ran.output("stderr")) if stream == "stderr" else told) == size


async def test_a_cancel_ends_a_running_command(patient: Stage):
    mark = token()
    await patient.begin(scripted({"run": f"sleep {mark}"}))
    await until(lambda: running(f"sleep\0{mark}"))
    await patient.link.stop(ATTEMPT, kill=False)
    ran = await patient.rest()
    assert ran.exit["outcome"] == "cancelled"
    assert ran.told("session.ended")[0]["stop_reason"] == "cancelled"


async def test_it_plays_a_file_for_any_client(tmp_path: Path):
    (tmp_path / "book.yaml").write_text("- say: from a file\n")
    calls = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 2, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}},
        {"id": 3, "method": "session/prompt", "params": {"sessionId": "scripted-1", "prompt": []}},
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandbox_supervisor", "scripted-agent", "--playbook", str(tmp_path / "book.yaml"),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[3]), "PATH": os.defpath},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    answers: list[dict[str, Any]] = []
    for call in calls:
        process.stdin.write(json.dumps(call).encode() + b"\n")
        while not answers or answers[-1].get("id") != call["id"]:
            answers.append(json.loads(await asyncio.wait_for(process.stdout.readline(), 20)))
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 20) == 0
    assert answers[2]["params"]["update"]["content"]["text"] == "from a file"
    assert answers[3]["result"] == {"stopReason": "end_turn"}


# --- edits stay inside -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EditKind.CONTENT, EditKind.APPEND, EditKind.REPLACE])
def test_an_edit_through_a_link_is_refused(tmp_path: Path, kind: EditKind):
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    tree.mkdir()
    outside.mkdir()
    (outside / "file").write_text("keep")
    (tree / "folder").symlink_to(outside)
    (tree / "file").symlink_to(outside / "file")
    for path in ("folder/file", "folder/new", "file"):
        with pytest.raises((OSError, moves.Impossible)):
            moves.edit(tree, Edit(path=path, kind=kind, text="evil", old="keep"), "evil")
    assert (outside / "file").read_text() == "keep"
    assert [entry.name for entry in outside.iterdir()] == ["file"]


def test_a_deleted_link_leaves_what_it_leads_to(tmp_path: Path):
    (tmp_path / "kept").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/link").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match="symbolic"):
        moves.edit(tmp_path / "tree", Edit(path="link", kind=EditKind.DELETE), "")
    assert (tmp_path / "kept").read_text() == "x"


@pytest.mark.parametrize("kind", [EditKind.APPEND, EditKind.REPLACE])
def test_an_edit_of_a_file_that_is_too_large_loses_nothing_of_it(tmp_path: Path, kind: EditKind):
    content = b"old" + b"x" * moves.FILE_LIMIT
    (tmp_path / "large").write_bytes(content)
    with pytest.raises(moves.Impossible, match="larger than"):
        moves.edit(tmp_path, Edit(path="large", kind=kind, text="new", old="old"), "new")
    assert (tmp_path / "large").read_bytes() == content


def test_an_edit_keeps_bytes_that_are_no_text(tmp_path: Path):
    (tmp_path / "mixed").write_bytes(b"\xff old \xfe")
    moves.edit(tmp_path, Edit(path="mixed", kind=EditKind.REPLACE, text="new", old="old"), "new")
    assert (tmp_path / "mixed").read_bytes() == b"\xff new \xfe"
