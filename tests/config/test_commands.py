"""What the commands of ``./caisson`` say, keep and leave behind, without a running product."""

import argparse
import dataclasses
import errno
import io
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import endpoints as twisted_endpoints

from config import state
from config.commands import dispatch, follow, processes, product, reset, result, terminal, work
from config.commands.client import ApiProblem, Client
from config.commands.processes import Layout

PROMISED = {
    *("task", "status", "flow", "repository", "remote", "base_commit", "branch", "commit", "change_request"),
    *("nodes", "attempts", "max_parallel", "rework_rounds", "events", "first_node_s", "total_s"),
    *("presence", "retain_until", "console_url", "database"),
}


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """Commands own their process: what they set of it must not reach the next test."""
    environment, mask = dict(os.environ), os.umask(0o022)
    os.umask(mask)
    yield
    os.umask(mask)
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    folder = state.prepare(tmp_path / "s")
    run = tmp_path / "run"
    run.mkdir()
    return Layout(checkout=Path(__file__).parents[2], state=folder, run=run, port=1, threads=1)


class Console(Client):
    """A client whose console gives these answers, problems among them, one after another."""

    def __init__(self, *answers: Any) -> None:
        super().__init__("http://localhost:1", "t")
        self.answers = list(answers)
        self.posted: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []

    def get(self, path: str, **query: Any) -> Any:
        self.asked.append(query)
        return self._next()

    def post(self, path: str, body: Any, *, key: str, **headers: str) -> Any:
        self.posted.append({"key": key} | dict(body))
        return self._next()

    def _next(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def page(*events: dict[str, Any]) -> dict[str, Any]:
    return {"events": [{"epoch": "e", "seq": seq, "node": "a"} | event for seq, event in enumerate(events, start=1)]}


ASKED = {"kind": "request.opened", "data": {"id": "r1", "node": "a", "title": "Go on?", "options": [{"id": "yes"}]}}


def test_an_answer_that_the_sandbox_could_not_take_is_given_again():
    away = ApiProblem(503, {"code": "sandbox_unreachable"})
    console = Console(page(ASKED), away, page(ASKED), {})
    follower = follow.Follower(console, "tsk_1", follow.first_option, after="e:0")
    assert follower._listen() is False
    assert follower.after == "e:0"
    assert follower._listen() is True
    assert follower.after == "e:1"
    assert [each["key"] for each in console.posted] == ["answer-r1", "answer-r1"]


def test_the_end_of_the_graph_is_listened_past_for_a_moment_only():
    ended, reopened = {"kind": "graph.state", "data": {"state": "failed"}}, {"kind": "graph.reopened", "data": {}}
    console = Console(page(ended), page(reopened), page())
    follower = follow.Follower(console, "tsk_1", follow.nobody, after="e:0")
    assert [follower._listen() for _ in range(3)] == [True] * 3
    assert [each["wait"] for each in console.asked] == [follow.LISTEN, follow.LAST_WORDS, follow.LISTEN]


def test_a_question_that_somebody_else_has_answered_ends_nothing():
    console = Console(page(ASKED), ApiProblem(409, {"code": "already_answered"}))
    follower = follow.Follower(console, "tsk_1", follow.first_option, after="e:0")
    assert follower._listen() is True


def test_the_answer_that_was_given_is_told_as_its_option(capsys):
    assert follow.Follower(Console(page(ASKED), {}), "tsk_1", follow.first_option, after="e:0")._listen() is True
    assert "a asks: Go on? → yes\n" in capsys.readouterr().err


def test_a_node_that_can_never_run_any_more_counts_as_done():
    states = {"a": "failed", "b": "unreachable", "c": "waiting"}
    assert follow.Follower(Console(), "tsk_1", follow.nobody, states=states)._bar() == "[fu.] 2/3"


def test_nothing_that_a_task_says_steers_the_terminal(capsys):
    terminal.say("a asks: \x1b]0;owned\x07 \x1b[2J\u202e then\nmore")
    terminal.tell("caisson: \x1b[31mred\n  second line")
    said = capsys.readouterr().err
    assert not set("\x1b\x07\u202e") & set(said)
    assert said.count("\n") == 3
    assert "\n  second line\n" in said


def test_a_port_that_is_kept_for_root_is_not_blamed_on_another_program(monkeypatch):
    class Kept(socket.socket):
        def bind(self, _: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("socket.socket", Kept)  # whoever runs the tests may be root
    with pytest.raises(product.ProductProblem, match=r"port 80 .*kept for root") as refused:
        product.require_free(80)
    assert "another program" not in str(refused.value)


def test_what_one_sentence_says_is_not_said_twice(capsys):
    said = {"detail": "There is no flow 'x'.", "errors": [{"pointer": "/flow", "detail": "There is no flow 'x'."}]}
    work.tell_problem(ApiProblem(404, said))
    assert capsys.readouterr().err == "caisson: There is no flow 'x'.\n"


def test_a_closed_terminal_stops_nobody(monkeypatch):
    class Closed:
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("sys.stderr", Closed())
    terminal.say("stopping")


@pytest.mark.parametrize("port", ["eighty", "70000"])
def test_the_promised_object_is_the_last_line_also_when_nothing_could_start(tmp_path, monkeypatch, capsys, port):
    monkeypatch.setenv("CAISSON_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("CAISSON_PORT", port)
    assert dispatch.main(tmp_path, ["demo", "--json"]) == 1
    said = capsys.readouterr()
    told = json.loads(said.out.splitlines()[-1])
    assert set(told) == PROMISED
    assert set(told.values()) == {None}
    assert "CAISSON_PORT" in said.err


@pytest.mark.parametrize("arguments", [["run", "repo", "--json"], ["demo", "--json", "--no-such-option"]])
def test_the_promised_object_is_the_last_line_also_after_wrong_usage(tmp_path, capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        dispatch.main(tmp_path, arguments)
    assert ended.value.code == dispatch.Exit.USAGE
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result.nothing()


def test_help_is_no_object(tmp_path, capsys):
    with pytest.raises(SystemExit):
        dispatch.main(tmp_path, ["demo", "--json", "--help"])
    assert capsys.readouterr().out.startswith("usage: ")


def test_the_members_of_the_object_are_those_that_the_commands_fill():
    assert set(result.nothing()) == PROMISED


@pytest.mark.parametrize(
    ("repository", "brief", "why"),
    [("", "x", "REPO is empty"), ("r", "  ", "BRIEF is empty"), ("r", "bri\udcffef", "not valid UTF-8")],
)
def test_what_could_mean_nothing_is_refused_as_wrong_usage(layout, capsys, repository, brief, why):
    given = argparse.Namespace(
        repository=repository, brief=brief, flow="tidy", remote=None, json=False, result=result.nothing()
    )
    assert work.run(layout, given) == dispatch.Exit.USAGE
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("text", ["~nobody-of-that-name/x", "loop"])
def test_a_path_that_cannot_be_followed_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(work.Unusable, match="can be followed"):
        work._address(text)


@pytest.mark.parametrize("content", [None, b"\xff", b"a" * (256 * 1024 + 1)])
def test_a_flow_file_that_cannot_be_used_is_named(tmp_path, content):
    path = tmp_path / "flow.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(work.Unusable, match=r"flow\.yaml"):
        work._source(path)


def test_reset_removes_what_is_ours_and_leaves_what_was_there_before(layout, capsys):
    (layout.state / "thesis.tex").write_text("years of work")
    (layout.state / "demo").mkdir()
    assert reset.main(layout, argparse.Namespace(yes=True)) == 0
    assert [path.name for path in layout.state.iterdir()] == ["thesis.tex"]
    assert "thesis.tex" in capsys.readouterr().err
    assert not layout.run.exists()


def test_reset_of_a_state_that_was_never_started_starts_nothing(layout):
    assert reset.main(layout, argparse.Namespace(yes=True)) == 0
    assert not layout.state.exists()


def test_reset_without_a_yes_removes_nothing(layout, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert reset.main(layout, argparse.Namespace(yes=False)) == 1
    assert layout.state.exists()


@pytest.mark.django_db
def test_the_database_of_a_newer_version_is_refused_by_name():
    from django.db.migrations.recorder import MigrationRecorder

    from config.commands import local

    MigrationRecorder.Migration.objects.create(app="tasks_app", name="9999_from_the_future")
    with pytest.raises(product.ProductProblem, match=r"newer Caisson.*9999_from_the_future"):
        local.prepare_database()


def test_an_interruption_in_the_moment_of_the_start_leaves_no_process_manager(layout, monkeypatch):
    begun, begin = [], subprocess.Popen

    def interrupted(_, **options):
        begun.append(begin(["sleep", "600"], **options))
        os.kill(os.getpid(), signal.SIGTERM)
        return begun[0]

    monkeypatch.setattr("config.commands.product.subprocess.Popen", interrupted)
    heard = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            product.start(layout)
    finally:
        signal.signal(signal.SIGTERM, heard)
        begun[0].kill()
    assert begun[0].returncode == -signal.SIGTERM


@pytest.mark.parametrize("name", ["Project #1", "a ;b", "a\nb"])
def test_a_state_directory_that_the_process_manager_would_misread_is_refused_and_not_made(tmp_path, monkeypatch, name):
    monkeypatch.setenv("CAISSON_STATE_DIR", str(tmp_path / name))
    with pytest.raises(product.ProductProblem, match="cannot be used"):
        dispatch.prepare_layout(Path("/checkout"), None)
    assert not (tmp_path / name).exists()


def test_twisted_reads_an_odd_socket_path_as_it_is(layout):
    odd = dataclasses.replace(layout, run=Path("/a=b:c\\d"))
    endpoint = next(word for word in processes.web_arguments(odd) if word.startswith("unix:"))
    assert twisted_endpoints._parse(endpoint) == (["unix", "/a=b:c\\d/control.sock"], {"mode": "600", "lockfile": "1"})


def test_the_worker_tells_nobody_that_it_is_there(layout):
    """Nobody listens, and each word would wake Redis and the worker, for as long as the product is idle."""
    worker = next(program for program in processes.programs(layout) if program.name == "worker")
    assert {"--without-gossip", "--without-mingle", "--without-heartbeat"} <= set(worker.command)
