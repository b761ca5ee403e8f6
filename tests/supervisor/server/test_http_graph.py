import asyncio
import json

import pytest

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import Command, CommandOutcome, CommandVerb, OutcomeCode, Snapshot
from sandbox_supervisor.protocol.stream import MESSAGE_LIMIT
from tests.fixtures.stream_client import Subscriber, connected


async def test_the_snapshot_reads_back_as_the_protocols_own(server, http):
    server.supervisor.append_many(2)
    answer = await http.get("/v1/snapshot")
    assert codec.decode(answer.content, Snapshot) == await server.supervisor.snapshot()


async def test_paging_through_the_events_meets_each_once(server, http):
    server.supervisor.append_many(25)
    seqs, after = [], ""
    while True:
        page = (await http.get("/v1/events", params={"after": after, "limit": 10} if after else {"limit": 10})).json()
        if not page["events"]:
            break
        seqs += [event["seq"] for event in page["events"]]
        after = f"{page['epoch']}:{page['upto']}"
    assert seqs == list(range(1, 26))


async def test_a_long_poll_is_answered_as_soon_as_something_happens(server, http):
    asyncio.get_running_loop().call_later(0.1, server.supervisor.append)
    page = (await http.get("/v1/events", params={"after": "epoch-1:0", "wait": "30"}, timeout=25)).json()
    assert [event["seq"] for event in page["events"]] == [1]


async def test_a_long_poll_without_news_comes_back_empty(http):
    page = (await http.get("/v1/events", params={"after": "epoch-1:0", "wait": "0.1"})).json()
    assert (page["events"], page["upto"], page["head"]) == ([], 0, 0)


async def test_a_filtered_page_moves_on_past_what_did_not_match(server, http):
    server.supervisor.append(attempt="a.1.1")
    server.supervisor.append(attempt="b.1.1")
    server.supervisor.append(attempt="a.1.1")
    server.supervisor.append(attempt="b.1.1")
    page = (await http.get("/v1/events", params={"attempt": "a.1.1"})).json()
    assert [event["seq"] for event in page["events"]] == [1, 3]
    assert page["upto"] == 4


@pytest.mark.parametrize(("after", "code"), [("epoch-0:1", "epoch_changed"), ("epoch-1:9", "seq_ahead")])
async def test_a_position_of_another_life_is_a_named_conflict(server, http, after, code):
    server.supervisor.append_many(2)
    answer = await http.get("/v1/events", params={"after": after})
    assert answer.status_code == 409
    assert answer.json() | {"detail": ""} == {
        "type": "about:blank",
        "title": code.replace("_", " "),
        "status": 409,
        "detail": "",
        "code": code,
        "epoch": "epoch-1",
        "head": 2,
    }


@pytest.mark.parametrize(
    "query",
    [
        "after=5",
        "after=epoch-1:-3",
        "limit=0",
        "limit=501",
        "limit=ten",
        "wait=31",
        "wait=nan",
        "wait=-1",
        "limit=1&limit=2",
        "nodes=a",
        "node=" + "x" * 5000,
        "node=%00",
    ],
)
async def test_a_parameter_that_makes_no_sense_is_refused_without_being_repeated(http, query):
    answer = await http.get(f"/v1/events?{query}")
    assert answer.status_code == 400
    assert answer.json()["code"] in {"invalid_parameter", "unknown_parameter"}
    assert "xxx" not in answer.text


async def test_poll_and_stream_tell_the_same_events_byte_for_byte(server, http):
    server.supervisor.append("output", node="a", generation=1, attempt="a.1.1", data={"text": "é\u2028<b>", "n": 1.5})
    async with connected(server) as socket:
        client = Subscriber()
        client.epoch = "epoch-1"
        await client.subscribe(socket)
        await client.receive(socket)
        framed = (await socket.recv(decode=False)).partition(b'"events":[')[2]
    polled = (await http.get("/v1/events")).content.partition(b'"events":[')[2]
    assert framed
    assert framed == polled


COMMAND = Command(id="c1", verb=CommandVerb.RERUN, actor="user:ada", nodes=("build",))


async def test_a_command_reaches_the_supervisor_and_answers_the_seq_to_wait_for(server, http):
    server.supervisor.outcome = CommandOutcome(code=OutcomeCode.DONE, seq=17)
    answer = await http.post("/v1/commands", content=codec.encode(COMMAND))
    assert (answer.status_code, answer.json()["seq"]) == (200, 17)
    assert server.supervisor.submitted == [COMMAND]


@pytest.mark.parametrize(
    ("code", "status"), [(OutcomeCode.REFUSED, 409), (OutcomeCode.UNKNOWN, 404), (OutcomeCode.INVALID, 422)]
)
async def test_a_command_that_cannot_be_done_is_a_problem_with_its_outcome(server, http, code, status):
    server.supervisor.outcome = CommandOutcome(code=code, reason="node_busy", message="build is running")
    answer = await http.post("/v1/commands", content=codec.encode(COMMAND))
    assert answer.status_code == status
    assert (answer.json()["code"], answer.json()["detail"]) == ("node_busy", "build is running")
    assert answer.json()["outcome"]["code"] == code


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"id":"c1"}', b'{"id":"c1","verb":"explode","actor":"a"}', b"\xff\xfe"]
)
async def test_a_malformed_command_is_refused_and_never_submitted(server, http, body):
    answer = await http.post("/v1/commands", content=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "malformed_command")
    assert server.supervisor.submitted == []


@pytest.mark.parametrize(("size", "status"), [(MESSAGE_LIMIT, 200), (MESSAGE_LIMIT + 1, 413)])
async def test_a_body_has_a_largest_size(http, size, status):
    body = codec.encode(COMMAND)
    padded = body[:-1] + b" " * (size - len(body)) + b"}"
    assert (await http.post("/v1/commands", content=padded)).status_code == status


async def test_unknown_paths_and_methods_are_problems(http):
    assert (await http.get("/v1/nothing")).json()["code"] == "not_found"
    answer = await http.delete("/v1/snapshot")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


async def test_a_fault_inside_is_a_problem_that_leaks_nothing(server, http, monkeypatch, caplog):
    async def broken() -> Snapshot:
        raise ZeroDivisionError("a detail that is nobody's business")

    monkeypatch.setattr(server.supervisor, "snapshot", broken)
    answer = await http.get("/v1/snapshot")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert "business" not in answer.text


async def test_answers_are_json_and_never_cached(server, http):
    server.supervisor.append(data={"text": "<script>"})
    answer = await http.get("/v1/events")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert json.loads(answer.content)["events"][0]["data"]["text"] == "<script>"
