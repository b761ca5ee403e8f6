import asyncio
import ssl
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sandbox_supervisor import control as control_module
from sandbox_supervisor.control import Backoff, Control
from sandbox_supervisor.protocol.messages import Desired
from sandbox_supervisor.protocol.spec import ControlPlane
from sandbox_supervisor.server.tls import server_context
from tests.fixtures.scripted_control import RUNNING, Cut, Reply
from tests.fixtures.scripted_supervisor import ScriptedSupervisor, certificate
from tests.fixtures.waiting import eventually

SOCKET_ADDRESS = 107  # bytes of a path in one


@asynccontextmanager
async def beating(client: Control, supervisor: ScriptedSupervisor):
    task = asyncio.create_task(client.run(supervisor))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_heartbeats_are_numbered_and_their_answers_heard(plane, client, socket_path):
    supervisor = ScriptedSupervisor()
    async with plane.listening(socket_path), beating(client, supervisor):
        await plane.until(lambda: len(plane.beats) >= 4)
    assert [beat.beat for beat in plane.beats] == list(range(1, len(plane.beats) + 1))
    assert supervisor.heard[0] == RUNNING
    assert (plane.beats[0].epoch, plane.beats[0].boot, plane.beats[0].round) == ("epoch-1", 1, 1)


async def test_they_go_over_one_connection_with_the_task_token(plane, client, socket_path):
    async with plane.listening(socket_path), beating(client, ScriptedSupervisor()):
        await plane.until(lambda: len(plane.beats) >= 5)
    assert plane.connections == 1
    assert {request.headers["authorization"] for request in plane.requests} == {"Bearer cst_task.key.mac"}


async def test_something_urgent_is_told_at_once(plane, client, socket_path, monkeypatch):
    monkeypatch.setattr(control_module, "SHORTEST_INTERVAL", 60.0)
    plane.answer = replace(RUNNING, interval=60.0)
    supervisor = ScriptedSupervisor()
    async with plane.listening(socket_path), beating(client, supervisor):
        for count in range(1, control_module.URGENT_AT_ONCE + 2):
            await plane.until(lambda count=count: len(plane.beats) >= count)
            supervisor.be_urgent()
    assert len(plane.beats) == control_module.URGENT_AT_ONCE + 1


async def test_much_that_is_urgent_makes_no_storm_of_beats(plane, client, socket_path, monkeypatch):
    monkeypatch.setattr(control_module, "SHORTEST_INTERVAL", 0.1)
    supervisor = ScriptedSupervisor()
    moments: list[float] = []

    def be_urgent_again(request: object) -> None:
        moments.append(asyncio.get_running_loop().time())
        supervisor.be_urgent()

    plane.after = be_urgent_again
    async with plane.listening(socket_path), beating(client, supervisor):
        await plane.until(lambda: len(plane.beats) >= control_module.URGENT_AT_ONCE + 4)
    assert moments[-1] - moments[0] >= 3 * 0.1


@pytest.mark.parametrize(("wanted", "waited"), [(42.0, 42.0), (-5.0, 0.01), (1e9, 60.0)])
async def test_the_control_plane_sets_the_interval_within_reason(plane, client, socket_path, wanted, waited):
    plane.answer = replace(RUNNING, interval=wanted)
    supervisor = ScriptedSupervisor()
    async with plane.listening(socket_path), beating(client, supervisor):
        await eventually(lambda: supervisor.waits)
    assert supervisor.waits[0] == waited


async def test_work_goes_on_while_the_control_plane_is_away_and_beats_resume_when_it_returns(
    plane, client, socket_path
):
    supervisor = ScriptedSupervisor()
    async with beating(client, supervisor) as running:
        async with plane.listening(socket_path):
            await plane.until(lambda: len(plane.beats) >= 2)
        heard = len(plane.beats)
        await eventually(lambda: len(supervisor.beats) >= heard + 3)
        assert not running.done()
        async with plane.listening(socket_path):
            await plane.until(lambda: len(plane.beats) >= heard + 2)
    numbers = [beat.beat for beat in plane.beats]
    assert numbers == sorted(set(numbers))


async def test_it_waits_for_a_control_plane_that_was_never_there(plane, client, socket_path):
    supervisor = ScriptedSupervisor()
    async with beating(client, supervisor):
        await eventually(lambda: len(supervisor.beats) >= 3)
        async with plane.listening(socket_path):
            await eventually(lambda: supervisor.heard)
    assert plane.beats[0].beat > 2
    assert supervisor.heard[0] == RUNNING


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Reply(status=500), id="fault"),
        pytest.param(Reply(status=503, headers=(("Retry-After", "0"),)), id="unavailable"),
        pytest.param(Reply(status=429, headers=(("Retry-After", "soon"),)), id="throttled"),
        pytest.param(Reply(status=200, body="nonsense"), id="nonsense"),
        pytest.param(Reply(status=302, headers=(("Location", "http://elsewhere/"),)), id="redirect"),
        pytest.param(Reply(status=404), id="not-found"),
    ],
)
async def test_an_answer_that_is_none_is_asked_for_again(plane, client, socket_path, fault):
    supervisor = ScriptedSupervisor()
    plane.before = lambda request: fault if len(plane.requests) <= 3 else None
    async with plane.listening(socket_path), beating(client, supervisor):
        await plane.until(lambda: len(plane.beats) >= 1)
        await eventually(lambda: supervisor.heard)
    assert supervisor.heard[0].desired is Desired.RUN
    assert client.ended is None


async def test_a_lost_answer_is_only_a_lost_beat(plane, client, socket_path):
    supervisor = ScriptedSupervisor()

    def lose_some(request):
        if len(plane.requests) in {2, 4}:
            raise Cut

    plane.after = lose_some
    async with plane.listening(socket_path), beating(client, supervisor):
        await plane.until(lambda: len(plane.beats) >= 8)
    assert [beat.beat for beat in plane.beats] == list(range(1, len(plane.beats) + 1))


async def test_gone_stops_the_work_and_is_remembered(plane, client, socket_path):
    supervisor = ScriptedSupervisor()
    plane.before = lambda request: Reply(status=410, body={"code": "sandbox_terminated", "detail": "over"})
    async with plane.listening(socket_path), beating(client, supervisor) as running:
        await eventually(lambda: client.ended and supervisor.heard)
        assert not running.done()
    assert client.ended == "sandbox_terminated"
    answer = supervisor.heard[-1]
    assert (answer.status, answer.desired, answer.reason) == ("ended", Desired.STOP, "sandbox_terminated")


async def test_a_refused_token_stops_the_work_only_when_it_stays_refused(plane, client, socket_path, monkeypatch):
    monkeypatch.setattr(control_module, "REFUSAL_PATIENCE", 0.3)
    supervisor = ScriptedSupervisor()
    plane.before = lambda request: Reply(status=401) if len(plane.requests) != 2 else None
    async with plane.listening(socket_path), beating(client, supervisor):
        await eventually(lambda: client.ended)
    assert supervisor.heard[0].desired is Desired.RUN
    assert supervisor.heard[-1].desired is Desired.STOP
    assert len([request for request in plane.requests if request.path.endswith("heartbeat")]) > 3


async def test_a_refusal_in_between_other_troubles_does_not_add_up(plane, client, socket_path, monkeypatch):
    monkeypatch.setattr(control_module, "REFUSAL_PATIENCE", 0.0001)
    supervisor = ScriptedSupervisor()
    plane.before = lambda request: Reply(status=401 if len(plane.requests) % 2 else 500)
    async with plane.listening(socket_path), beating(client, supervisor):
        await plane.until(lambda: len(plane.requests) >= 9)
    assert client.ended is None
    assert supervisor.heard == []


async def test_a_socket_path_longer_than_the_kernel_allows_still_works(plane, tmp_path):
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    short = tmp_path / "s"
    (folder / "control.sock").symlink_to(short)
    path = str(folder / "control.sock")
    client, supervisor = Control(ControlPlane(url="http://control", socket=path), token="t"), ScriptedSupervisor()
    async with plane.listening(short), beating(client, supervisor):
        await eventually(lambda: supervisor.heard)
    await client.close()
    assert len(path) > SOCKET_ADDRESS
    assert [request.path for request in plane.requests[:1]] == ["/internal/v1/heartbeat"]


@pytest.mark.parametrize(
    "url", ["http://control.example", "ftp://x", "https://user:pass@x", "https://x/path", "https://", "control"]
)
def test_only_https_or_a_unix_socket_is_spoken_to(url):
    with pytest.raises(ValueError, match="control plane"):
        Control(ControlPlane(url=url), token="t")


def test_pauses_grow_to_a_limit_and_never_keep_step(monkeypatch):
    monkeypatch.setattr(control_module, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(control_module, "LONGEST_PAUSE", 30.0)
    pauses = [[backoff.pause() for _ in range(10)] for backoff in (Backoff(), Backoff())]
    for number in range(10):
        longest = min(0.5 * 2**number, 30.0)
        assert all(longest / 2 <= row[number] <= longest for row in pauses)
    assert pauses[0] != pauses[1]


def test_a_wanted_pause_is_respected_up_to_a_minute():
    assert Backoff().pause(10.0) == 10.0
    assert Backoff().pause(99_999.0) == 60.0


async def test_over_a_network_it_speaks_tls_to_whom_it_trusts(plane):
    pem = certificate()
    trust = ssl.create_default_context(cadata=pem.decode().partition("-----BEGIN PRIVATE")[0])
    async with plane.listening_tls(server_context(pem)) as port:
        client = Control(ControlPlane(url=f"https://localhost:{port}"), token="t", trust=trust)
        async with beating(client, ScriptedSupervisor()):
            await plane.until(lambda: len(plane.beats) >= 2)
        await client.close()
    assert plane.connections == 1


async def test_to_whom_it_does_not_trust_it_says_nothing(plane):
    supervisor = ScriptedSupervisor()
    async with plane.listening_tls(server_context(certificate())) as port:
        client = Control(ControlPlane(url=f"https://localhost:{port}"), token="t")
        async with beating(client, supervisor):
            await eventually(lambda: len(supervisor.beats) >= 3)
        await client.close()
    assert plane.requests == []
