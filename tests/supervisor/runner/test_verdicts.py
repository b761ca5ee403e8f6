"""How a tree ended becomes one verdict; what a driver host claims is checked first."""

from typing import Any

import pytest

from sandbox_supervisor.runner.link import SessionEventKind, SpawnKind
from sandbox_supervisor.runner.verdicts import Ending, Nonsense, check_event, check_report, empty_session, judge
from sandbox_supervisor.runner.wire import Frame

COMMAND: dict[str, Any] = {"kind": SpawnKind.COMMAND, "stopped": False, "exited": {"code": 0}}
DRIVER: dict[str, Any] = {"kind": SpawnKind.DRIVER, "stopped": False, "exited": {"code": 0}}


@pytest.mark.parametrize(
    ("ending", "verdict"),
    [
        (COMMAND, ("ok", None, None)),
        (COMMAND | {"exited": {"code": 1}}, ("failed", "check_failed", "exit_code")),
        (COMMAND | {"exited": {"code": 127}}, ("failed", "check_failed", "not_found")),
        (COMMAND | {"exited": {"code": 137}}, ("failed", "infra", "killed")),
        (COMMAND | {"exited": {"signal": 9}}, ("failed", "infra", "killed")),
        (COMMAND | {"exited": {"signal": 11}}, ("failed", "check_failed", "signal")),
        (COMMAND | {"exited": {"signal": 64}}, ("failed", "check_failed", "signal")),
        (COMMAND | {"exited": None}, ("failed", "infra", "tree_lost")),
        (COMMAND | {"exited": None, "failed": "no such file"}, ("failed", "infra", "spawn_failed")),
        (COMMAND | {"stopped": True}, ("cancelled", None, "stopped")),
        (COMMAND | {"stopped": True, "exited": None}, ("cancelled", None, "stopped")),
        (DRIVER, ("failed", "infra", "driver_lost")),
        (DRIVER | {"report": {"outcome": "ok"}}, ("ok", None, None)),
        (DRIVER | {"report": {"outcome": "ok"}, "broken": "lies"}, ("failed", "protocol", "driver_host")),
        (DRIVER | {"report": {"outcome": "ok"}, "stopped": True}, ("cancelled", None, "stopped")),
    ],
)
def test_an_ending_has_one_verdict(ending: dict[str, Any], verdict: tuple[Any, ...]):
    found = judge(Ending(**ending))
    assert (found["outcome"], found["failure_class"], found["code"]) == verdict
    assert found["outcome"] == "ok" or found["message"]


def test_a_session_without_a_word_is_the_agents_error():
    found = empty_session(Ending(**DRIVER, report={"outcome": "ok", "quiet": True}))
    assert (found["failure_class"], found["code"]) == ("agent_error", "empty")


@pytest.mark.parametrize(
    "header",
    [
        {"kind": "event", "data": {"kind": "graph.state", "data": {}}},
        {"kind": "event", "data": {"kind": "session.message", "data": "x"}},
        {"kind": "event", "data": {"kind": ["session.message"], "data": {}}},
        {"kind": "exit", "data": {"outcome": "ok"}},
        {"kind": "output", "data": {"stream": "stdin"}},
        {"kind": "ask", "data": {"title": "no id"}},
        {"kind": "ask", "data": {"request_id": 5, "title": "x"}},
        {"kind": "what", "data": {}},
        {"kind": "event"},
        {},
    ],
)
def test_what_no_honest_driver_host_reports_is_not_believed(header: dict[str, Any]):
    with pytest.raises(Nonsense):
        check_event(Frame(header))


def test_a_request_has_only_its_known_fields():
    asked = {"request_id": "r1", "title": "x", "evil": 1}
    _, data, _ = check_event(Frame({"kind": "ask", "data": asked}))
    assert "evil" not in data
    assert data["title"] == "x"


def test_usage_has_only_numbers():
    kind, data, _ = check_event(Frame({"kind": "usage", "data": {"a": 1, "b": "x", "c": True, "d": 2.5}}))
    assert (kind, data) == (SessionEventKind.USAGE, {"a": 1, "d": 2.5})


@pytest.mark.parametrize(
    "report", [None, [], {}, {"outcome": "great"}, {"outcome": "failed", "failure_class": "mine"}, {"outcome": ["ok"]}]
)
def test_an_end_that_makes_no_sense_is_not_believed(report):
    with pytest.raises(Nonsense):
        check_report(report)


def test_an_end_is_reduced_to_what_may_be_in_it():
    found = check_report({"outcome": "failed", "message": "m" * 10**5, "exit_code": "7", "facts": 3, "evil": 1})
    assert len(found["message"]) == 4000
    assert (found["exit_code"], found["facts"], "evil" in found) == (None, {}, False)
