"""One proven runner at a time, and nobody else."""

import asyncio
import os
import shutil
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_supervisor.isolation import Isolation, Tier
from sandbox_supervisor.protocol import PROTOCOL
from sandbox_supervisor.runner import gate as gate_module
from sandbox_supervisor.runner import shim, wire
from sandbox_supervisor.runner.gate import RunnerGate
from sandbox_supervisor.runner.link import RunnerLost, RunnerRefused
from tests.supervisor.runner.stage import ATTEMPT, GIVE_UP, Stage, runner_argv, shell, start_runner, until

NONCE = "a-nonce-of-this-test"
HELLO = {"t": "hello", "protocol": PROTOCOL, "nonce": NONCE, "pid": 7, "isolation": {}, "limits": {}}


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[RunnerGate]:
    opened = RunnerGate(tmp_path / "ctl", NONCE)
    await opened.start()
    yield opened
    await opened.close()


class Caller:
    """Somebody who connects to the gate."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, folder: Path) -> "Caller":
        fd = os.open(folder, os.O_PATH)
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(f"/proc/self/fd/{fd}/ctl.sock")
        os.close(fd)
        return cls(*await asyncio.open_unix_connection(sock=sock))

    def say(self, header: dict[str, Any], payload: bytes = b"") -> None:
        self.writer.write(wire.pack(header, payload))

    async def dropped(self) -> bool:
        """Say whether the gate closes the connection without a word."""
        try:
            async with asyncio.timeout(GIVE_UP):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.transport.abort()


async def test_who_knows_the_nonce_is_let_in(gate: RunnerGate, tmp_path: Path):
    caller = await Caller.connect(tmp_path / "ctl")
    caller.say(HELLO)
    runner = await asyncio.wait_for(gate.accept(), GIVE_UP)
    assert (runner.hello.pid, runner.lost) == (7, False)
    caller.close()
    await asyncio.wait_for(runner.wait_lost(), GIVE_UP)


@pytest.mark.parametrize(
    "hello",
    [
        HELLO | {"nonce": "another"},
        HELLO | {"nonce": NONCE + "x"},
        HELLO | {"nonce": None},
        HELLO | {"nonce": ""},
        HELLO | {"protocol": 999},
        HELLO | {"pid": "x"},
        HELLO | {"isolation": 3},
        {"t": "call", "id": 1, "op": "prepare", "a": {}},
        {"nonce": NONCE},
    ],
)
async def test_who_does_not_prove_itself_is_dropped(gate: RunnerGate, tmp_path: Path, hello: dict[str, Any]):
    caller = await Caller.connect(tmp_path / "ctl")
    caller.say(hello)
    assert await caller.dropped()
    caller.close()


@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"\xff" * 100, wire.pack({"x": "y" * 20_000})]
)
async def test_noise_is_dropped(gate: RunnerGate, tmp_path: Path, noise: bytes):
    caller = await Caller.connect(tmp_path / "ctl")
    caller.writer.write(noise)
    assert await caller.dropped()
    caller.close()


async def test_who_says_nothing_is_dropped_in_time(gate: RunnerGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gate_module, "PROOF_TIME", 0.05)
    caller = await Caller.connect(tmp_path / "ctl")
    assert await caller.dropped()
    caller.close()


async def test_silent_callers_do_not_keep_the_runner_out(gate: RunnerGate, tmp_path: Path):
    silent = [await Caller.connect(tmp_path / "ctl") for _ in range(gate_module.UNPROVEN_LIMIT - 1)]
    caller = await Caller.connect(tmp_path / "ctl")
    caller.say(HELLO)
    await asyncio.wait_for(gate.accept(), GIVE_UP)
    for one in (*silent, caller):
        one.close()


async def test_more_unproven_callers_than_the_limit_are_dropped_at_once(gate: RunnerGate, tmp_path: Path):
    callers = [await Caller.connect(tmp_path / "ctl") for _ in range(gate_module.UNPROVEN_LIMIT)]
    one_more = await Caller.connect(tmp_path / "ctl")
    assert await one_more.dropped()
    for caller in (*callers, one_more):
        caller.close()


async def test_a_second_runner_is_dropped_while_the_first_is_there(gate: RunnerGate, tmp_path: Path):
    first, second = await Caller.connect(tmp_path / "ctl"), await Caller.connect(tmp_path / "ctl")
    first.say(HELLO)
    runner = await asyncio.wait_for(gate.accept(), GIVE_UP)
    second.say(HELLO)
    assert await second.dropped()
    assert not runner.lost
    first.close()
    second.close()


async def test_the_next_runner_is_let_in_when_the_first_is_lost(gate: RunnerGate, tmp_path: Path):
    first = await Caller.connect(tmp_path / "ctl")
    first.say(HELLO)
    runner = await asyncio.wait_for(gate.accept(), GIVE_UP)
    first.close()
    await asyncio.wait_for(runner.wait_lost(), GIVE_UP)
    second = await Caller.connect(tmp_path / "ctl")
    second.say(HELLO | {"pid": 8})
    assert (await asyncio.wait_for(gate.accept(), GIVE_UP)).hello.pid == 8
    second.close()


async def test_a_runner_that_came_and_went_unseen_is_not_given(gate: RunnerGate, tmp_path: Path):
    callers = []
    for pid in (7, 8):
        callers.append(await Caller.connect(tmp_path / "ctl"))
        callers[-1].say(HELLO | {"pid": pid})
        await until(lambda: gate._current is not None and not gate._current.lost)
        if pid == 7:
            callers[-1].close()
            await until(lambda: gate._current is not None and gate._current.lost)
    assert (await asyncio.wait_for(gate.accept(), GIVE_UP)).hello.pid == 8
    callers[-1].close()


async def test_another_users_process_is_dropped_before_it_says_anything(tmp_path: Path):
    closed = RunnerGate(tmp_path / "ctl", NONCE, uids=frozenset({os.getuid() + 1}))
    await closed.start()
    caller = await Caller.connect(tmp_path / "ctl")
    assert await caller.dropped()
    caller.close()
    await closed.close()


async def test_what_an_earlier_supervisor_left_in_the_place_of_the_socket_is_replaced(tmp_path: Path):
    (tmp_path / "ctl").mkdir()
    (tmp_path / "ctl/ctl.sock").write_text("stale")
    opened = RunnerGate(tmp_path / "ctl", NONCE)
    await opened.start()
    assert stat.S_ISSOCK((tmp_path / "ctl/ctl.sock").stat().st_mode)
    assert stat.S_IMODE((tmp_path / "ctl/ctl.sock").stat().st_mode) == 0o600
    await opened.close()


async def test_a_path_longer_than_a_socket_address_works(tmp_path: Path):
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    for name in ("ctl", "work", "repo"):
        (folder / name).mkdir(parents=True)
    opened = RunnerGate(folder / "ctl", NONCE)
    await opened.start()
    process = start_runner(runner_argv(folder, tmp_path, Isolation(tier=Tier.NONE)), NONCE)
    runner = await asyncio.wait_for(opened.accept(), GIVE_UP)
    assert runner.hello.pid == process.pid
    await opened.close()
    process.terminate()
    await asyncio.to_thread(process.wait, GIVE_UP)


@pytest.mark.parametrize(
    "frame",
    [
        {"t": "event", "attempt": "ghost.1.1", "kind": "output", "data": {}, "cost": 300},
        {"t": "what"},
        {"t": "event", "attempt": "a.1.1", "kind": "nonsense", "data": {}, "cost": 300},
        {"t": "event"},
    ],
)
async def test_a_runner_that_breaks_the_protocol_is_lost(gate: RunnerGate, tmp_path: Path, frame: dict[str, Any]):
    caller = await Caller.connect(tmp_path / "ctl")
    caller.say(HELLO)
    runner = await asyncio.wait_for(gate.accept(), GIVE_UP)
    caller.say(frame)
    await asyncio.wait_for(runner.wait_lost(), GIVE_UP)
    caller.close()


async def test_a_runner_whose_events_cost_less_than_their_bytes_is_lost(gate: RunnerGate, tmp_path: Path):
    caller = await Caller.connect(tmp_path / "ctl")
    caller.say(HELLO)
    runner = await asyncio.wait_for(gate.accept(), GIVE_UP)
    spawning = asyncio.create_task(runner.spawn(ATTEMPT, shell("true")))
    await wire.read(caller.reader, header_limit=wire.CALL_LIMIT)
    caller.say({"t": "event", "attempt": ATTEMPT, "kind": "event", "data": {"x": "y" * 100_000}, "cost": 0})
    await asyncio.wait_for(runner.wait_lost(), GIVE_UP)
    with pytest.raises(RunnerLost):
        await spawning
    caller.close()


async def test_a_diff_beyond_what_a_runner_gives_is_not_collected(gate: RunnerGate, tmp_path: Path):
    caller = await Caller.connect(tmp_path / "ctl")
    caller.say(HELLO)
    runner = await asyncio.wait_for(gate.accept(), GIVE_UP)
    asking = asyncio.create_task(runner.diff(ATTEMPT, "1" * 40))
    await wire.read(caller.reader, header_limit=wire.CALL_LIMIT)
    caller.say({"t": "ok", "id": 1, "r": {"size": 10**12}})
    with pytest.raises(RunnerRefused) as refused:
        await asyncio.wait_for(asking, GIVE_UP)
    assert refused.value.code == "diff_too_large"
    caller.close()


async def test_open_calls_and_sessions_end_with_the_connection(gate: RunnerGate, tmp_path: Path):
    caller = await Caller.connect(tmp_path / "ctl")
    caller.say(HELLO)
    runner = await asyncio.wait_for(gate.accept(), GIVE_UP)
    call = asyncio.create_task(runner.prepare(ATTEMPT, "1" * 40))
    await asyncio.wait_for(caller.reader.read(10), GIVE_UP)
    caller.close()
    with pytest.raises(RunnerLost):
        await asyncio.wait_for(call, GIVE_UP)
    with pytest.raises(RunnerLost):
        await runner.go(ATTEMPT)


# --- the runner's end ------------------------------------------------------------------------------------------------


async def test_the_runners_environment_shows_no_nonce(on_stage: Stage):
    pids = [on_stage.process.pid, *_below(on_stage.process.pid)]
    shown = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in pids}
    runners = [pid for pid in pids if b"runner" in Path(f"/proc/{pid}/cmdline").read_bytes() and not _is_bwrap(pid)]
    assert runners
    assert all(on_stage.nonce.encode() not in shown[pid] for pid in runners)


async def test_the_runner_is_closed_to_others_of_its_user(bare_stage: Stage):
    assert Path(f"/proc/{bare_stage.process.pid}/environ").stat().st_uid == 0


async def test_children_get_neither_the_nonce_nor_the_line(on_stage: Stage):
    ran = await on_stage.sh("cat /proc/*/environ 2>/dev/null; env; ls -l /proc/self/fd")
    assert on_stage.nonce.encode() not in ran.output()
    assert ran.output().count(b"socket:") == 0


def _below(pid: int) -> list[int]:
    return [found for found, _, _ in shim.descendants(pid)]


def _is_bwrap(pid: int) -> bool:
    return "bwrap" in Path(f"/proc/{pid}/exe").readlink().name


async def test_a_runner_comes_back_after_the_connection_was_lost_and_works(on_stage: Stage):
    await on_stage.link.close()
    on_stage.link = await asyncio.wait_for(on_stage.gate.accept(), GIVE_UP)
    assert (await on_stage.sh("echo again")).output() == b"again\n"


async def test_a_runner_waits_for_a_supervisor_that_comes_later(tmp_path: Path):
    for name in ("ctl", "work", "repo"):
        (tmp_path / name).mkdir()
    process = start_runner(runner_argv(tmp_path, tmp_path, Isolation(tier=Tier.NONE)), NONCE)
    late = RunnerGate(tmp_path / "ctl", NONCE)
    await late.start()
    assert (await asyncio.wait_for(late.accept(), GIVE_UP)).hello.pid == process.pid
    await late.close()
    process.terminate()
    await asyncio.to_thread(process.wait, GIVE_UP)


async def test_a_runner_whose_folder_vanished_ends(bare_stage: Stage):
    shutil.rmtree(bare_stage.folder / "ctl")
    await bare_stage.link.close()
    await until(lambda: bare_stage.process.poll() is not None)
    assert bare_stage.process.returncode == 0


async def test_a_runner_without_a_nonce_does_not_start(tmp_path: Path):
    process = start_runner(runner_argv(tmp_path, tmp_path, Isolation(tier=Tier.NONE)), "")
    assert await asyncio.to_thread(process.wait, GIVE_UP) == 64


async def test_an_unknown_call_or_wrong_arguments_are_refused_and_change_nothing(bare_stage: Stage):
    for name, arguments, code in (
        ("evil", {}, "unknown_call"),
        ("go", {"x": 1}, "bad_call"),
        ("prepare", {}, "bad_call"),
    ):
        with pytest.raises(RunnerRefused) as refused:
            await bare_stage.link._call(name, **arguments)
        assert refused.value.code == code
    assert (await bare_stage.sh("echo fine")).output() == b"fine\n"


async def test_a_shell_that_was_spawned_may_be_listened_to_once(bare_stage: Stage):
    await bare_stage.begin(shell("true"))
    await bare_stage.rest()
    with pytest.raises(RunnerRefused):
        await bare_stage.rest()
