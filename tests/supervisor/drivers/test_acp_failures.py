"""Sessions that end badly: agents that fail, and agents that attack."""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox_supervisor.drivers import acp
from sandbox_supervisor.runner.link import Spawn, SpawnKind
from tests.supervisor.drivers.agents import agent, lead, verdict
from tests.supervisor.runner.stage import Stage, rss, running, token, until

MIB = 1024 * 1024


BAD_ENDS = {
    "prompt: done(message)": ("agent_error", "empty"),
    "prompt: text(' '); done(message)": ("agent_error", "empty"),
    "prompt: done(message, 'refusal')": ("agent_error", "refusal"),
    "prompt: done(message, 'max_tokens')": ("agent_error", "max_tokens"),
    "prompt: send(id=message['id'], result={})": ("protocol", "no_stop_reason"),
    "prompt: send(id=message['id'], error={'code': 1, 'message': 'boom'})": ("agent_error", "agent_error"),
    "prompt: send(id=message['id'], error={'code': 429, 'message': 'x'})": ("rate_limited", "rate_limited"),
    "prompt: os._exit(3)": ("agent_error", "crash"),
    "prompt: os.kill(os.getpid(), 11)": ("agent_error", "crash"),
    "prompt: os.kill(os.getpid(), 9)": ("infra", "killed"),
    "prompt: os.close(1); time.sleep(60)": ("agent_error", "crash"),
    "prompt: print('not json', flush=True)": ("protocol", "bad_json"),
    "prompt: print('{\"half\"', flush=True)": ("protocol", "bad_json"),
    "prompt: print('[1]', flush=True)": ("protocol", "bad_json"),
    "initialize: send(id=message['id'], result={'protocolVersion': 2})": ("protocol", "version"),
    "initialize: send(id=message['id'], result='hi')": ("protocol", "version"),
    "initialize: os._exit(5)": ("agent_error", "crash"),
    "new: send(id=message['id'], result={})": ("protocol", "no_session"),
    "new: send(id=message['id'], error={'code': -32000, 'message': 'auth'})": ("agent_error", "sign_in_needed"),
    "prompt: send(id=message['id'], error={'code': -32000, 'message': 'auth'})": ("agent_error", "sign_in_needed"),
    "prompt: send(id=message['id'], error={'code': 401, 'message': 'bad key'})": ("agent_error", "sign_in_needed"),
}


@pytest.mark.parametrize(("function", "expected"), BAD_ENDS.items(), ids=BAD_ENDS.keys())
async def test_every_bad_end_has_its_class(at: Stage, function: str, expected: tuple[Any, ...]):
    name, _, body = function.partition(":")
    assert verdict(await lead(at, f"def {name}(message): {body}")) == ("failed", *expected)


async def test_silence_is_no_failure_when_the_tree_was_changed(at: Stage):
    ran = await lead(at, "def prompt(message): open('new', 'w').write('x'); done(message)")
    assert verdict(ran) == ("ok", None, None)


async def test_an_agent_that_cannot_be_started_is_an_infra_failure(at: Stage):
    await at.begin(Spawn(kind=SpawnKind.DRIVER, argv=("/no/such/agent",), prompt="x"))
    ran = await at.rest()
    assert verdict(ran) == ("failed", "infra", "spawn_failed")
    assert "sees neither your home nor /tmp" in ran.exit["message"]


async def test_an_agent_that_only_prints_why_it_will_not_work_fails_with_that(at: Stage):
    """As kimi-cli 1.52 does, which names its successor and ends well."""
    ran = await lead(at, "print('This agent has moved.', flush=True); os._exit(0)")
    assert verdict(ran) == ("failed", "agent_error", "crash")
    assert ran.exit["message"].endswith("with exit code 0. It last wrote: This agent has moved.")


async def test_an_agent_whose_interpreter_is_missing_fails_with_its_last_words(at: Stage):
    """As a script of npm does where node lies in a home: the kernel starts env, and env does not find it."""
    program = at.state / "agent"
    program.write_text("#!/usr/bin/env no-such-node\n")
    program.chmod(0o755)
    await at.begin(Spawn(kind=SpawnKind.DRIVER, argv=(str(program),), prompt="x"))
    ran = await at.rest()
    assert verdict(ran) == ("failed", "agent_error", "crash")
    assert "before it had opened a session, with exit code 127. It last wrote: " in ran.exit["message"]
    assert "no-such-node" in ran.exit["message"]


async def test_an_agent_that_never_answers_the_handshake_is_given_up(at: Stage, monkeypatch: pytest.MonkeyPatch):
    up = _Silent()
    monkeypatch.setattr(acp, "HANDSHAKE", 0.1)
    job = acp.Job(
        argv=("sleep", "60"), env={"PATH": "/bin:/usr/bin"}, cwd="/", prompt="x", result_file="/", exit_patience=0.1
    )
    session = acp.Session(job, cast("Any", up))
    report = await session.run()
    assert (report.failure_class, report.code) == ("protocol", "no_answer")
    assert session._process is not None
    session._process.kill()
    await session._process.wait()


class _Silent:
    """An uplink that takes everything."""

    def __getattr__(self, name: str):
        async def take(*_: object) -> None:
            return None

        return take


async def test_a_line_of_20_mib_is_a_protocol_failure_and_costs_bounded_memory(at: Stage):
    await at.begin(
        agent(f"def prompt(message): sys.stdout.write('x' * {20 * MIB}); sys.stdout.flush(); time.sleep(60)")
    )
    ran = await at.rest()
    assert verdict(ran) == ("failed", "protocol", "line_too_long")
    assert rss(at.process.pid) < 96 * MIB


async def test_a_flood_without_a_line_end_stops_at_the_limit(at: Stage):
    ran = await lead(at, "def prompt(message):\n    while True: sys.stdout.write('x' * 65536)")
    assert verdict(ran) == ("failed", "protocol", "line_too_long")


async def test_a_flood_of_permission_requests_is_bounded(at: Stage):
    body = """
def prompt(message):
    for number in range(100, 400): send(id=number, method="session/request_permission", params={"options": []})
    refused = 0
    while refused < 236:
        answer = json.loads(sys.stdin.readline())
        refused += "error" in answer
    text("refused %d" % refused); done(message)
"""
    await at.begin(agent(body))
    ran = await at.rest()
    assert len(ran.asked()) <= 64
    assert ran.told("session.message")[-1]["text"] == "refused 236"


async def test_control_characters_and_escapes_travel_as_text(at: Stage):
    ran = await lead(at, r"""def prompt(message): text("\x1b[2J\x00\u202e<script>"); done(message)""")
    assert ran.told("session.message")[0]["text"] == "\x1b[2J\x00\u202e<script>"


async def test_a_killed_driver_host_is_an_infra_failure_and_leaves_no_agent(at: Stage):
    mark = token()
    await at.begin(agent(f"def prompt(message):\n    import subprocess; subprocess.run(['sleep', '{mark}'])"))
    await until(lambda: running(f"sleep\0{mark}"))
    hosts = [pid for pid in running("sandbox_supervisor.drivers.host") if _of(at, pid)]
    assert len(hosts) == 1
    os.kill(hosts[0], 9)
    assert verdict(await at.rest()) == ("failed", "infra", "driver_lost")
    assert running(mark) == []


def _of(at: Stage, pid: int) -> bool:
    """Say whether this host is ours; one of another test may have ended since it was seen."""
    try:
        return str(at.attempt().path).encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


async def test_an_agent_gets_neither_nonce_nor_the_hosts_own_variables(at: Stage):
    ran = await lead(at, "def prompt(message): text(json.dumps(dict(os.environ))); done(message)", env={"MODEL": "m"})
    told = "".join(event["text"] for event in ran.told("session.message"))
    assert '"MODEL": "m"' in told
    assert at.nonce not in told
    assert "PYTHONPATH" not in told
    assert "SECRET" not in told
