"""What only the supervisor knows is asked over real TLS and handed on; when it is gone, the final snapshot answers."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import (
    AttemptView,
    CommandOutcome,
    NodeView,
    OutcomeCode,
    RequestView,
    Snapshot,
)
from sandbox_supervisor.protocol.states import AttemptState, GraphState, NodeState, RequestKind, RequestState
from sandbox_supervisor.server.tls import fingerprint
from tasks_app.models import Task, TaskSnapshot
from tasks_app.models.outcome import ArchiveKind
from tasks_app.services import archive, clock, tokens
from tasks_app.states import Presence, Status
from tests.api.clients import Api
from tests.fixtures.impostor import answering, impostor
from tests.fixtures.scripted_supervisor import ScriptedSupervisor, certificate, served
from tests.task_rows import House, make_task
from workspaces_app.states import Role

pytestmark = pytest.mark.django_db

NODE = NodeView(key="work", kind="command", state=NodeState.SUCCEEDED, generation=1, result_commit="b" * 40)
DIGEST = "sha256:" + "d" * 64
ATTEMPT = AttemptView(
    id="work.1.1", node="work", generation=1, n=1, state=AttemptState.SUCCEEDED,
    artefacts=({"name": "report", "digest": DIGEST, "size": 3},),
)  # fmt: skip
QUESTION = RequestView(
    id="req-1", kind=RequestKind.APPROVAL, state=RequestState.OPEN, node="work", attempt=None, title="Go on?"
)


@dataclass
class Live:
    """A task whose supervisor runs in a thread of its own."""

    task: Task
    supervisor: ScriptedSupervisor
    loop: asyncio.AbstractEventLoop

    def append(self, **fields: Any) -> None:
        asyncio.run_coroutine_threadsafe(self._append(fields), self.loop).result(10)

    async def _append(self, fields: dict[str, Any]) -> None:
        self.supervisor.append(**fields)


@pytest.fixture
def live(house: House) -> Iterator[Live]:
    task = make_task(house)
    supervisor = ScriptedSupervisor()
    supervisor.attempts = (ATTEMPT,)
    supervisor.snapshot_extra = {"nodes": (NODE,), "requests": (QUESTION,), "max_parallel": 2}
    supervisor.outputs = {"work.1.1.stdout": b"hello\n", "work.1.1.stderr": b"oh\n"}
    supervisor.files = {"README.md": b"<script>alert(1)</script>"}
    supervisor.stored = {DIGEST: b"abc"}
    loop = asyncio.new_event_loop()
    started, done = threading.Event(), asyncio.Event()
    place: dict[str, Any] = {}

    async def run() -> None:
        async with served(supervisor, token=tokens.dial_token(task)) as server:
            place.update(host="127.0.0.1", port=server.port, fingerprint=server.fingerprint)
            started.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert started.wait(10)
    Task.objects.filter(pk=task.pk).update(endpoint=place)
    task.refresh_from_db()
    yield Live(task=task, supervisor=supervisor, loop=loop)
    loop.call_soon_threadsafe(done.set)
    thread.join(10)
    assert not thread.is_alive()
    loop.close()


def url(live: Live, rest: str) -> str:
    return f"tasks/{live.task.pk}/{rest}"


def test_the_graph_comes_from_the_supervisor(api, live):
    response = api.get(url(live, "graph"))
    assert response.status_code == 200
    assert response["Caisson-Source"] == "live"
    graph = codec.decode(response.content, Snapshot)
    assert (graph.nodes[0].key, graph.max_parallel) == ("work", 2)


def test_a_node_comes_with_its_attempts_and_questions(api, live):
    body = api.get(url(live, "nodes/work")).json()
    assert body["node"]["result_commit"] == "b" * 40
    assert [attempt["id"] for attempt in body["attempts"]] == ["work.1.1"]
    assert [request["title"] for request in body["requests"]] == ["Go on?"]


def test_a_node_that_the_graph_has_not_is_unknown(api, live):
    assert api.get(url(live, "nodes/other")).json()["code"] == "node_unknown"


def test_an_attempt_can_be_read(api, live):
    assert api.get(url(live, "attempts/work.1.1")).json()["state"] == "succeeded"
    assert api.get(url(live, "attempts/work.9.9")).json()["code"] == "attempt_unknown"


@pytest.mark.parametrize(
    ("query", "text"), [("", b"hello\n"), ("?stream=stdout", b"hello\n"), ("?stream=stderr", b"oh\n")]
)
def test_the_output_of_an_attempt_is_handed_on(api, live, query, text):
    response = api.get(url(live, f"attempts/work.1.1/log{query}"))
    assert (response.status_code, response.content) == (200, text)


def test_another_stream_is_refused_here(api, live):
    response = api.get(url(live, "attempts/work.1.1/log?stream=secret"))
    assert (response.status_code, response.json()["detail"]) == (
        400,
        "Invalid enum value 'secret'; allowed: stdout, stderr.",
    )


def test_a_range_of_the_output_is_handed_on(api, live):
    response = api.get(url(live, "attempts/work.1.1/log"), range="bytes=1-3")
    assert (response.status_code, response.content) == (206, b"ell")
    assert response["Content-Range"].startswith("bytes 1-3/")


def test_a_file_of_an_attempt_never_becomes_a_page(api, live):
    response = api.get(url(live, "attempts/work.1.1/files/content?path=README.md"))
    assert response.content == b"<script>alert(1)</script>"
    assert "html" not in response["Content-Type"]
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Disposition"].startswith("attachment")


def test_the_files_of_an_attempt_are_listed(api, live):
    response = api.get(url(live, "attempts/work.1.1/files"))
    assert "README.md" in response.content.decode()


def test_a_file_is_asked_for_by_its_path(api, live):
    response = api.get(url(live, "attempts/work.1.1/files/content"))
    assert (response.status_code, response.json()["errors"][0]["code"]) == (400, "missing")


def test_the_diff_of_an_attempt_is_handed_on(api, live):
    assert api.get(url(live, "attempts/work.1.1/diff")).content == b"--- a\n+++ b\n"


@pytest.mark.parametrize("part", ["log", "files", "files/content?path=x", "diff", "artefacts", f"artefacts/{DIGEST}"])
@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "image/svg+xml", "application/json", "text/javascript"])
def test_a_sandbox_that_was_taken_over_cannot_make_a_page_of_the_console(api, house, part, kind):
    head = [f"Content-Type: {kind}", "Content-Disposition: inline", "Content-Security-Policy: script-src *",
            "X-Content-Type-Options: sniff", "Set-Cookie: caisson_session=x", "Location: https://example.org",
            "Access-Control-Allow-Origin: *"]  # fmt: skip
    task = make_task(house)
    with impostor(answering(b"<script>alert(1)</script>", *head)) as other:
        place = {"host": "127.0.0.1", "port": other.port, "fingerprint": fingerprint(certificate())}
        Task.objects.filter(pk=task.pk).update(endpoint=place)
        response = api.get(f"tasks/{task.pk}/attempts/work.1.1/{part}")
    assert response.status_code == 200
    assert response["Content-Type"] == (kind if kind == "application/json" else "application/octet-stream")
    assert response["Content-Disposition"] == "attachment"
    assert response["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert not {"Location", "Access-Control-Allow-Origin"} & set(response.headers)
    assert "caisson_session" not in response.cookies


@pytest.mark.parametrize("header", ["range", "if_range", "if_none_match"])
@pytest.mark.parametrize("value", ["bytes=é", "bytes=0-\x07", "bytes=" + "9" * 5000 + "-", "nonsense", "bytes=5-1"])
def test_a_condition_that_makes_no_sense_breaks_nothing(api, live, header, value):
    response = api.get(url(live, "attempts/work.1.1/log"), **{header: value})
    assert response.status_code in {200, 416}


def test_what_the_supervisor_does_not_have_is_not_found(api, live):
    assert api.get(url(live, "attempts/none.1.1/log")).status_code == 404
    assert api.get(url(live, "attempts/work.1.1/files/content?path=nothing")).status_code == 404


@pytest.mark.parametrize("attempt", ["..", "%2e%2e%2f%2e%2e%2fsnapshot", "a%20b", "a%3Fb=c", "%0d%0aX: y"])
def test_the_name_of_an_attempt_leads_nowhere_else(api, live, attempt):
    assert api.get(url(live, f"attempts/{attempt}/log")).status_code in {404, 422}


def test_events_are_relayed_after_a_place_in_the_log(api, live):
    for number in range(3):
        live.append(data={"number": number})
    body = api.get(url(live, f"stream?after={live.supervisor.epoch}:1&limit=10")).json()
    assert [event["seq"] for event in body["events"]] == [2, 3]


def test_a_long_poll_returns_when_something_happens(api, live):
    timer = threading.Timer(0.2, lambda: live.append(data={}))
    timer.start()
    body = api.get(url(live, f"stream?after={live.supervisor.epoch}:0&wait=10")).json()
    timer.join(5)
    assert len(body["events"]) == 1


def test_another_epoch_is_told_to_take_the_graph_anew(api, live):
    response = api.get(url(live, "stream?after=other:5"))
    assert (response.status_code, response.json()["code"]) == (409, "epoch_changed")


@pytest.mark.parametrize("after", ["5", "here"])
def test_a_place_in_the_log_that_is_none_is_the_askers_mistake(api, live, after):
    response = api.get(url(live, f"stream?after={after}"))
    assert (response.status_code, response.json()["errors"][0]["parameter"]) == (400, "after")


@pytest.mark.parametrize("query", ["wait=26", "limit=0", "limit=501", "after=" + "x" * 200])
def test_a_stream_beyond_its_limits_is_refused(api, live, query):
    assert api.get(url(live, f"stream?{query}")).status_code == 400


# --- commands ---


def test_a_command_reaches_the_supervisor_with_the_members_key_and_name(api, live, house):
    response = api.post(url(live, "commands"), {"verb": "rerun", "nodes": ["work"]}, idempotency_key="k1")
    assert (response.status_code, response.json()["seq"]) == (202, 1)
    command = live.supervisor.submitted[0]
    assert command.nodes == ("work",)
    assert command.actor == "user:main-operator"
    assert command.id == f"{house.user().pk}:k1"


def test_two_members_with_the_same_key_send_two_commands(live, house, api):
    body = {"verb": "pause"}
    api.post(url(live, "commands"), body, idempotency_key="k")
    Api.of_user(house.user(Role.ADMIN)).post(url(live, "commands"), body, idempotency_key="k")
    assert len({command.id for command in live.supervisor.submitted}) == 2


def test_an_answer_is_handed_on_as_it_was_given(api, live):
    api.post(url(live, "commands"), {"verb": "answer", "request": "req-1", "answer": {"option": "yes"}})
    assert live.supervisor.submitted[0].answer == {"option": "yes"}


@pytest.mark.parametrize(
    ("code", "status"), [(OutcomeCode.REFUSED, 409), (OutcomeCode.UNKNOWN, 404), (OutcomeCode.INVALID, 422)]
)
def test_a_no_of_the_supervisor_is_handed_on(api, live, code, status):
    live.supervisor.outcome = CommandOutcome(code=code, reason="already_answered", message="Somebody was first.")
    response = api.post(url(live, "commands"), {"verb": "answer", "request": "req-1", "answer": 1})
    document = response.json()
    assert (response.status_code, document["code"], document["detail"]) == (
        status,
        "already_answered",
        "Somebody was first.",
    )


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"verb": "dance"}, "/verb"),
        ({"verb": "rerun"}, "/nodes"),
        ({"verb": "rework", "node": "work"}, "/feedback"),
        ({"verb": "answer"}, "/request"),
        ({"verb": "message", "text": "x"}, "/attempt"),
        ({"verb": "cancel_attempt"}, "/attempt"),
        ({"verb": "rerun", "nodes": ["x"], "actor": "somebody else"}, "/actor"),
        ({"verb": "rerun", "nodes": ["x"], "id": "1"}, "/id"),
    ],
)
def test_a_command_that_makes_no_sense_never_leaves_the_control_plane(api, live, body, pointer):
    response = api.post(url(live, "commands"), body)
    assert response.status_code in {400, 422}
    assert response.json()["errors"][0]["pointer"] == pointer
    assert not live.supervisor.submitted


def test_a_command_that_the_tasks_state_forbids_says_what_is_possible(api, live):
    now = clock.database_now()
    Task.objects.filter(pk=live.task.pk).update(
        status=Status.COMPLETED, first_terminal_at=now, retain_until=now + live.task.max_retention
    )
    response = api.post(url(live, "commands"), {"verb": "pause"})
    document = response.json()
    assert (response.status_code, document["code"]) == (409, "not_possible_now")
    assert "rerun" in document["allowed_actions"]
    assert api.post(url(live, "commands"), {"verb": "rerun", "nodes": ["work"]}).status_code == 202


# --- before, without and after ---


def test_before_its_sandbox_a_task_is_asked_to_wait(api, house):
    task = make_task(house, status=Status.PROVISIONING, presence=Presence.CREATING)
    response = api.get(f"tasks/{task.pk}/graph")
    assert (response.status_code, response.json()["code"]) == (503, "sandbox_not_ready")
    assert response["Retry-After"]


def test_a_supervisor_that_does_not_answer_is_unreachable(api, live):
    Task.objects.filter(pk=live.task.pk).update(endpoint={**live.task.endpoint, "port": 1})
    response = api.get(url(live, "graph"))
    assert (response.status_code, response.json()["code"]) == (503, "sandbox_unreachable")


def test_somebody_else_behind_the_address_gets_nothing_from_us(api, live):
    Task.objects.filter(pk=live.task.pk).update(endpoint={**live.task.endpoint, "fingerprint": "0" * 64})
    response = api.post(url(live, "commands"), {"verb": "pause"})
    assert (response.status_code, response.json()["code"]) == (503, "wrong_instance")
    assert not live.supervisor.submitted


@pytest.fixture
def reclaimed(house: House) -> Task:
    task = make_task(house, status=Status.COMPLETED, presence=Presence.RECLAIMED)
    final = Snapshot(
        epoch="e", seq=9, graph=GraphState.SUCCEEDED, round=1, boot=1, nodes=(NODE,), attempts=(ATTEMPT,), requests=()
    )
    TaskSnapshot.objects.create(
        task=task, round=1, digest="sha256:" + "e" * 64, data=codec.plain(final), stored_at=clock.database_now()
    )
    return task


def test_after_reclamation_graph_nodes_and_attempts_still_answer(api, reclaimed):
    graph = api.get(f"tasks/{reclaimed.pk}/graph")
    assert (graph.status_code, graph["Caisson-Source"]) == (200, "snapshot")
    assert graph.json()["nodes"][0]["result_commit"] == "b" * 40
    assert api.get(f"tasks/{reclaimed.pk}/nodes/work").json()["attempts"][0]["id"] == "work.1.1"
    assert api.get(f"tasks/{reclaimed.pk}/attempts/work.1.1").json()["state"] == "succeeded"
    assert api.get(f"tasks/{reclaimed.pk}/attempts/work.1.1/artefacts").json()[0]["name"] == "report"


def test_after_reclamation_an_archived_artefact_is_downloaded(api, reclaimed):
    row = archive.keep(reclaimed, ArchiveKind.ARTEFACT, b"kept bytes", name="out/<b>.html")
    response = api.get(f"tasks/{reclaimed.pk}/attempts/work.1.1/artefacts/{row.digest}")
    assert b"".join(response.streaming_content) == b"kept bytes"
    assert response["Content-Type"] == "application/octet-stream"
    assert response["Content-Disposition"] == "attachment; filename*=UTF-8''%3Cb%3E.html"


@pytest.mark.parametrize(
    "rest", ["attempts/work.1.1/log", "attempts/work.1.1/diff", "attempts/work.1.1/files", "stream"]
)
def test_after_reclamation_what_was_in_the_tree_is_gone(api, reclaimed, rest):
    response = api.get(f"tasks/{reclaimed.pk}/{rest}")
    assert (response.status_code, response.json()["code"]) == (410, "reclaimed")


def test_after_reclamation_no_command_is_taken(api, reclaimed):
    assert api.post(f"tasks/{reclaimed.pk}/commands", {"verb": "rerun", "nodes": ["work"]}).status_code == 410


def test_a_lost_sandbox_without_a_snapshot_is_gone(api, house):
    task = make_task(house, status=Status.FAILED, presence=Presence.LOST)
    response = api.get(f"tasks/{task.pk}/graph")
    assert (response.status_code, response.json()["code"]) == (410, "sandbox_gone")
