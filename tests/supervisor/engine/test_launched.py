"""The supervisor as its launcher starts it: descriptors for socket, certificate and secrets; TLS and bearer."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox_supervisor import isolation
from sandbox_supervisor.materialise.repository import bring_in
from sandbox_supervisor.protocol import codec
from tests.fixtures.scripted_supervisor import certificate
from tests.supervisor.engine.scenario import PATIENCE, ROOT, Sandbox, command

SECRETS = {"task_token": "cst_x.y.z", "dial_token": "dial-secret", "runner_nonce": "nonce-secret"}


@dataclass(slots=True)
class Launched:
    box: Sandbox
    process: subprocess.Popen[bytes]
    port: int
    runner: subprocess.Popen[bytes] | None = None

    def ask(self, path: str, *, method: str = "GET", body: object = None, token: str = SECRETS["dial_token"]):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=context)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        client.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = client.getresponse()
        status, said = answer.status, answer.read()
        client.close()
        return status, json.loads(said or b"null")

    def until(self, path: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        ends_at = time.monotonic() + PATIENCE
        while time.monotonic() < ends_at:
            said: dict[str, Any] = self.ask(path)[1]
            if holds(said):
                return said
            time.sleep(0.05)
        raise AssertionError(f"{path} says {said}")


def memory(data: bytes) -> int:
    fd = os.memfd_create("test", 0)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def launch(box: Sandbox) -> Launched:
    for part in ("ctl", "work"):
        (box.folder / part).mkdir(parents=True, exist_ok=True)
    (box.folder / "spec.json").write_bytes(codec.canonical(box.spec))
    bring_in(box.folder / "repo", box.spec.repository)
    listener = socket.create_server(("127.0.0.1", 0))
    tls, secrets = memory(certificate()), memory(json.dumps(SECRETS).encode())
    fds = (listener.fileno(), tls, secrets)
    argv = [sys.executable, "-m", "sandbox_supervisor", "supervise", "--folder", str(box.folder)]
    argv += ["--instance", "boot:1:2", "--fingerprint", "ab" * 32]
    argv += ["--listen-fd", str(fds[0]), "--tls-fd", str(fds[1]), "--secrets-fd", str(fds[2])]
    with (box.folder / "launched.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=ROOT, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    port = listener.getsockname()[1]
    listener.close()
    os.close(tls)
    os.close(secrets)
    box.started.append(process)
    return Launched(box, process, port)


def start_runner(launched: Launched) -> None:
    places = ["--folder", str(launched.box.folder), "--isolation", "none"]
    environment = os.environ | {"CAISSON_RUNNER_NONCE": SECRETS["runner_nonce"]}
    argv = [*isolation.runner_prefix(tier="none"), sys.executable, "-m", "sandbox_supervisor", "runner", *places]
    launched.runner = subprocess.Popen(argv, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
    launched.box.started.append(launched.runner)


@pytest.fixture
def launched(sandbox) -> Launched:
    running = launch(sandbox([command("one", "true")]))
    start_runner(running)
    return running


def test_it_answers_over_tls_to_the_bearer_only(launched):
    assert launched.until("/readyz", lambda said: said.get("ready"))["instance"] == "boot:1:2"
    assert launched.ask("/v1/snapshot")[1]["graph"] == "running"
    assert launched.ask("/v1/snapshot", token="wrong")[0] == 401
    outcome = launched.ask("/v1/commands", method="POST", body={"id": "c1", "verb": "cancel", "actor": "ada"})
    assert outcome[0] in (200, 202)
    assert launched.until("/v1/snapshot", lambda said: said["graph"] == "cancelled")


def test_it_starts_at_little_cost_and_stays_small(launched):
    """The promise is 0.5 s on an idle machine; any machine can be held to some processor time of an interpreter."""
    bare = subprocess.Popen([sys.executable, "-c", "import asyncio, http.client, sqlite3, ssl"])
    used = os.wait4(bare.pid, 0)[2]
    bare.returncode = 0
    launched.until("/readyz", lambda said: said.get("ready"))
    process = Path(f"/proc/{launched.process.pid}")
    spent = sum(int(word) for word in process.joinpath("stat").read_text().rpartition(")")[2].split()[11:13])
    status = dict(line.split(":", 1) for line in process.joinpath("status").read_text().splitlines())
    assert spent / os.sysconf("SC_CLK_TCK") < 12 * (used.ru_utime + used.ru_stime)
    assert int(status["VmRSS"].split()[0]) < 64 * 1024


def test_nothing_of_the_secrets_is_in_its_command_line_environment_or_folder(launched):
    launched.until("/readyz", lambda said: said.get("ready"))
    seen = Path(f"/proc/{launched.process.pid}/cmdline").read_bytes()
    seen += b"".join(path.read_bytes() for path in launched.box.folder.rglob("*") if path.is_file())
    for value in SECRETS.values():
        assert value.encode() not in seen
    assert not Path(f"/proc/{launched.process.pid}/environ").stat().st_uid  # not dumpable: root owns it


def test_it_ends_in_order_when_told_and_a_successor_goes_on(launched):
    launched.until("/readyz", lambda said: said.get("ready"))
    epoch = launched.ask("/v1/snapshot")[1]["epoch"]
    launched.process.terminate()
    assert launched.process.wait(PATIENCE) == 0
    again = launch(launched.box)
    said = again.until("/v1/snapshot", lambda said: "epoch" in said)
    assert (said["epoch"], said["boot"]) == (epoch, 2)


def test_it_exits_when_its_folder_has_vanished(launched):
    launched.until("/readyz", lambda said: said.get("ready"))
    launched.box.folder.rename(launched.box.folder.with_name("moved"))
    assert launched.process.wait(PATIENCE) == 66


def test_a_damaged_log_is_served_but_nothing_is_scheduled(launched):
    launched.until("/readyz", lambda said: said.get("ready"))
    launched.process.terminate()
    launched.process.wait(PATIENCE)
    database = launched.box.folder / "log" / "log.sqlite3"
    data = bytearray(database.read_bytes())
    at = data.rfind(b"node.state")
    data[at : at + 4] = b"NODE"
    database.write_bytes(data)
    again = launch(launched.box)
    said = again.until("/readyz", lambda said: "storage_corrupt" in json.dumps(said))
    assert not said.get("ready")
    outcome = again.ask("/v1/commands", method="POST", body={"id": "c1", "verb": "cancel", "actor": "ada"})
    assert outcome[0] == 409
    assert "storage_corrupt" in json.dumps(outcome[1])
