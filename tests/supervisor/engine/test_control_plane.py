"""A supervisor and its control plane: gate, delivery, uploads, archive, cancel, stop, silence."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_supervisor import control as control_module
from sandbox_supervisor import git
from sandbox_supervisor.engine.running import Running
from sandbox_supervisor.graph.rows import State
from sandbox_supervisor.log.space import BALLAST
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import ChangeRequest, Delivery, Node, NodeKind
from sandbox_supervisor.protocol.messages import (
    CommandVerb,
    DeliveryAnswer,
    DeliveryState,
    Desired,
    Head,
    HeartbeatAnswer,
    Snapshot,
)
from sandbox_supervisor.protocol.spec import ControlPlane
from sandbox_supervisor.protocol.states import AttemptState, GraphState, NodeState
from tests.fixtures.scripted_control import RUNNING, Reply, Request, ScriptedControl
from tests.supervisor.engine.live import connected, live, send, until
from tests.supervisor.engine.scenario import BRANCH, Sandbox, agent, command, deliver, keeping
from tests.supervisor.engine.test_commands import ended, runs

HOLD = replace(RUNNING, status="provisioning", desired=Desired.HOLD)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(control_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(control_module, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(control_module, "SHORTEST_INTERVAL", 0.01)


@pytest.fixture
def plane() -> ScriptedControl:
    return ScriptedControl()


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


@pytest.fixture
def box(sandbox: Callable[..., Sandbox], socket_path: Path) -> Callable[..., Sandbox]:
    """Make a sandbox whose specification names the control plane."""

    def make(*args: Any, **more: Any) -> Sandbox:
        endpoint = ControlPlane(url="http://control", socket=str(socket_path), heartbeat_interval=0.05)
        return sandbox(*args, control=endpoint, **more)

    return make


def settle(plane: ScriptedControl, **facts) -> None:
    """Let the control plane say how the delivery ended, and tell of it in the heartbeat."""

    def before(request: Request) -> Reply | None:
        if request.method == "GET" and "/deliveries/" in request.path:
            return Reply(body=DeliveryAnswer(id="dlv_deliver", **facts))
        return None

    plane.before = before
    plane.answer = replace(plane.answer, deliveries=("dlv_deliver",))


def failure_code(state: State, node: str) -> str:
    failure = state.nodes[node].failure
    assert failure is not None
    return failure.code


async def test_nothing_starts_before_the_control_plane_says_running(box, plane, socket_path):
    plane.answer = HOLD
    sandbox = box([command("one", "true")])
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        await connected(running)
        await plane.until(lambda: sum(beat.ready for beat in plane.beats) >= 5)
        assert running.engine.state.attempts == {}
        plane.answer = RUNNING
        assert (await until(running, ended)).graph.state is GraphState.SUCCEEDED
        await plane.until(lambda: plane.beats[-1].graph is GraphState.SUCCEEDED)


async def test_a_delivery_carries_exactly_the_work_and_succeeds_with_what_was_pushed(box, plane, socket_path, tmp_path):
    wanted = ChangeRequest(title="{{ task.title }}!", body="{{ nodes.work.outcome }}", draft=True)
    node = Node(key="deliver", kind=NodeKind.DELIVERY, needs=("work",), delivery=Delivery(change_request=wanted))
    sandbox = box([keeping("work", "echo 2 > value.txt"), node])
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        await plane.until(lambda: "dlv_deliver" in plane.stored)
        request = plane.deliveries["dlv_deliver"]
        settle(plane, state=DeliveryState.DELIVERED, branch=BRANCH, commit=request.commit, change_request={"number": 7})
        state = await until(running, ended)
        assert state.graph.state is GraphState.SUCCEEDED
        assert state.nodes["deliver"].result["change_request"] == {"number": 7}
        proof = running.reports.heartbeat(1).delivery
        assert proof is not None
        assert (proof.commit, proof.nothing, proof.state) == (request.commit, False, NodeState.SUCCEEDED)
    assert (request.title, request.body, request.draft) == ("Test task!", "succeeded", True)
    assert request.key == "tsk_test:deliver:1:push"
    bundle = tmp_path / "received.bundle"
    bundle.write_bytes(plane.stored["dlv_deliver"].data)
    assert f"sha256:{hashlib.sha256(bundle.read_bytes()).hexdigest()}" == request.bundle_digest
    listed = git.run(None, "bundle", "list-heads", str(bundle)).text
    assert listed == f"{request.commit} refs/heads/{BRANCH}"


async def test_nothing_to_deliver_is_said_as_such(box, plane, socket_path):
    sandbox = box([command("look", "true"), deliver("look")])
    settle(plane, state=DeliveryState.NOTHING)
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        state = await until(running, ended)
        assert state.graph.state is GraphState.SUCCEEDED
        request = plane.deliveries["dlv_deliver"]
        assert (request.commit, request.bundle_digest) == (request.base_commit, None)
        proof = running.reports.heartbeat(1).delivery
        assert proof is not None
        assert proof.nothing


@pytest.mark.parametrize("verdict", [DeliveryState.CONFLICT, DeliveryState.REFUSED, DeliveryState.FAILED])
async def test_a_delivery_that_did_not_go_through_fails_its_node_with_the_reason(box, plane, socket_path, verdict):
    sandbox = box([keeping("work", "echo 2 > value.txt"), deliver("work")])
    settle(plane, state=verdict, code="remote_moved", message="The branch moved.")
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        state = await until(running, ended)
        assert failure_code(state, "deliver") == "remote_moved"
        assert list(state.attempts) == ["work.1.1", "deliver.1.1"]


async def test_a_refused_request_fails_the_node(box, plane, socket_path):
    sandbox = box([keeping("work", "echo 2 > value.txt"), deliver("work")])
    refusal = Reply(status=403, body={"code": "scope", "detail": "not now"})
    plane.before = lambda request: refusal if request.path.endswith("/deliveries") else None
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        state = await until(running, ended)
        assert failure_code(state, "deliver") == "scope"


async def test_artefacts_and_the_final_snapshot_leave_the_sandbox(box, plane, socket_path):
    sandbox = box([command("work", "echo hello > $CAISSON_ARTEFACTS/a.txt")])
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        await until(running, lambda state: ended(state) and not state.intents)
    digest = hashlib.sha256(b"hello\n").hexdigest()
    assert plane.stored[f"artefacts/{digest}"].data == b"hello\n"
    snapshot = codec.decode(bytes(plane.stored["archive/snapshot"].data), Snapshot)
    assert snapshot.graph is GraphState.SUCCEEDED
    assert snapshot.attempts[0].artefacts[0]["digest"] == f"sha256:{digest}"


async def test_a_wanted_snapshot_is_sent_while_the_graph_runs(box, plane, socket_path):
    plane.answer = replace(RUNNING, archive_wanted=True)
    sandbox = box([command("slow", "sleep 600")])
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        await plane.until(lambda: "archive/snapshot" in plane.stored)
        assert running.engine.state.graph.state is GraphState.RUNNING


async def test_a_wish_to_cancel_ends_the_graph_as_cancelled(box, plane, socket_path):
    sandbox = box([command("slow", "sleep 600")], [command("bye", "true")])
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        await until(running, runs("slow.1.1"))
        plane.answer = replace(RUNNING, desired=Desired.CANCEL)
        state = await until(running, ended)
        assert state.graph.state is GraphState.CANCELLED
        assert state.nodes["bye"].state is NodeState.SUCCEEDED


@pytest.mark.parametrize("round_", [1, 0])
async def test_the_word_ended_kills_every_tree_and_leaves_everything_readable(box, plane, socket_path, round_):
    sandbox = box([command("slow", "sleep 600")], [command("bye", "true")])
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        await until(running, runs("slow.1.1"))
        plane.answer = HeartbeatAnswer(
            status="failed", round=round_, desired=Desired.STOP, reason="lost", interval=0.05
        )
        state = await until(running, ended)
        assert state.attempts["slow.1.1"].state is AttemptState.CANCELLED
        assert state.nodes["bye"].state is NodeState.CANCELLED
        assert not [line for line in sandbox.processes() if "sleep" in line]
        assert (await running.facade.attempt_log("slow.1.1", "stdout", 0, 10)).data == b""


async def test_work_goes_on_while_the_control_plane_is_away(box, plane, socket_path):
    sandbox = box(
        [command("first", "while ! test -e ../../../go; do sleep 0.05; done"), command("second", "true", "first")]
    )
    async with live(sandbox, gate=False) as running:
        async with plane.listening(socket_path):
            await until(running, runs("first.1.1"))
        (sandbox.folder / "go").touch()
        state = await until(running, ended)
        assert state.graph.state is GraphState.SUCCEEDED
        async with plane.listening(socket_path):
            await plane.until(lambda: plane.beats[-1].graph is GraphState.SUCCEEDED)


@asynccontextmanager
async def rerun(box: Callable[..., Sandbox], plane: ScriptedControl, socket_path: Path) -> AsyncIterator[Running]:
    """Rerun a failed node; while the block lasts the control plane does not say *running* for the second round."""
    sandbox = box([command("check", "test -e ../../../fixed")])
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        await until(running, ended)
        (sandbox.folder / "fixed").touch()
        plane.answer = replace(RUNNING, status="failed", desired=Desired.HOLD)
        await send(running, CommandVerb.RERUN, nodes=("check",))
        yield running
        assert "check.2.1" not in running.engine.state.attempts
        plane.answer = replace(RUNNING, round=2)
        state = await until(running, lambda state: ended(state) and state.graph.round == 2)
        assert state.graph.state is GraphState.SUCCEEDED


async def test_a_rerun_reports_a_higher_round_and_waits_for_the_word(box, plane, socket_path):
    async with rerun(box, plane, socket_path):
        await plane.until(lambda: sum(beat.round == 2 for beat in plane.beats) >= 3)


async def test_old_news_of_the_round_before_stops_nothing(box, plane, socket_path):
    async with rerun(box, plane, socket_path):
        plane.answer = replace(RUNNING, status="failed", desired=Desired.STOP)
        seen = len(plane.beats)
        await plane.until(lambda: len(plane.beats) >= seen + 3)
        assert plane.beats[-1].graph is GraphState.RUNNING


async def test_a_heartbeat_says_what_the_sandbox_itself_takes(box, plane, socket_path):
    sandbox = box([command("one", "head -c 8388608 /dev/urandom > big")])
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        await until(running, ended)
        assert await running.consumption.look()
        taken = running.consumption
        await plane.until(
            lambda: (plane.beats[-1].disk_used, plane.beats[-1].memory_used) == (taken.disk, taken.memory)
        )
        assert (8 << 20) + BALLAST <= taken.disk < 64 << 20  # its own, and not what else lies on the volume
        assert 16 << 20 < taken.memory < 2 << 30


async def test_a_question_is_told_at_once(box, plane, socket_path):
    plane.answer = replace(RUNNING, interval=control_module.LONGEST_INTERVAL)
    sandbox = box([agent("ask", [{"ask": {"title": "Which?", "options": ["a", "b"]}}])])
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        await connected(running)
        await plane.until(lambda: plane.beats[-1:] and plane.beats[-1].attention == 1)
        assert plane.beats[-1].bar == "i"


async def test_a_log_that_lacks_what_the_control_plane_knows_stops_everything_and_is_reported(box, plane, socket_path):
    sandbox = box([command("slow", "sleep 600")])
    async with plane.listening(socket_path), live(sandbox, gate=False) as running:
        await until(running, runs("slow.1.1"))
        plane.answer = replace(RUNNING, acknowledged=Head(seq=100_000, chain="ab" * 32))
        await plane.until(lambda: plane.beats[-1].failure is not None)
        assert plane.beats[-1].failure.code == "storage_corrupt"
        assert (plane.beats[-1].graph, plane.beats[-1].ready) == (GraphState.FAILED, False)
        assert await asyncio.to_thread(sandbox.wait_for_none, "sleep 600") == []  # it is this loop that ends it
        assert len(await running.facade.events(0, 100)) > 5
