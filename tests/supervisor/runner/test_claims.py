"""What a driver host claims is checked before anybody else sees it."""

from typing import Any

import pytest

from sandbox_supervisor.runner.claims import Nonsense, check_event, check_report
from sandbox_supervisor.runner.link import SessionEventKind
from sandbox_supervisor.runner.wire import Frame

ASKED: dict[str, Any] = {"request_id": "r1", "kind": "question", "title": "x", "schema": None, "options": []}


def event(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "event", "data": {"kind": kind, "data": data}}


@pytest.mark.parametrize(
    "header",
    [
        {"kind": "event", "data": {"kind": "graph.state", "data": {}}},
        {"kind": "event", "data": {"kind": "session.message", "data": "x"}},
        {"kind": "event", "data": {"kind": ["session.message"], "data": {}}},
        {"kind": "exit", "data": {"outcome": "ok"}},
        {"kind": "output", "data": {"stream": "stdin"}},
        {"kind": "event", "data": {"kind": "session.usage", "data": {}}},
        event("session.message", {"id": "1", "role": "agent"}),
        event("session.message", {"id": "1", "role": "agent", "text": 5}),
        event("session.message", {"id": "1", "role": "person", "text": "x"}),
        event("session.thought", {"text": "x"}),
        event("session.plan", {"entries": "x"}),
        event("session.plan", {"entries": ["x"]}),
        event("session.tool", {"id": "1", "content": [{"type": "html", "text": "x"}]}),
        event("session.tool", {"id": "1", "locations": [{"path": ["x"]}]}),
        event("session.started", {"agent": {"name": {}}}),
        event("session.ended", {"exit_code": "0"}),
        {"kind": "ask", "data": ASKED | {"request_id": None}},
        {"kind": "ask", "data": ASKED | {"request_id": 5}},
        {"kind": "ask", "data": ASKED | {"kind": "approval"}},
        {"kind": "ask", "data": ASKED | {"options": ["yes"]}},
        {"kind": "ask", "data": ASKED | {"options": 3}},
        {"kind": "ask", "data": ASKED | {"schema": "x"}},
        {"kind": "what", "data": {}},
        {"kind": "event"},
        {},
    ],
)
def test_what_no_honest_driver_host_reports_is_not_believed(header: dict[str, Any]):
    with pytest.raises(Nonsense):
        check_event(Frame(header))


def test_a_request_has_only_its_known_fields():
    _, data, _ = check_event(Frame({"kind": "ask", "data": ASKED | {"evil": 1}}))
    assert data == ASKED


def test_an_event_has_only_its_known_fields():
    patch = {"id": "1", "content": [{"type": "diff", "path": "a", "old": "x", "new": "y"}]}
    _, data, _ = check_event(Frame(event("session.tool", patch | {"evil": "<b>"})))
    assert data == {"kind": "session.tool", "data": patch}


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
    found = check_report(
        {"outcome": "failed", "message": "m" * 10**5, "exit_code": "7", "facts": 3, "result": 3, "evil": 1}
    )
    assert len(found["message"]) == 4000
    assert (found["exit_code"], found["facts"], found["result"], "evil" in found) == (None, {}, None, False)
