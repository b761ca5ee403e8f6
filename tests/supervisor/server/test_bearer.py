import asyncio
import ssl

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from sandbox_supervisor.server.app import ServerIdentity, build
from sandbox_supervisor.server.tempo import Tempo
from sandbox_supervisor.server.tls import fingerprint, server_context
from tests.fixtures.scripted_supervisor import TOKEN, ScriptedSupervisor, certificate, served
from tests.fixtures.stream_client import PATIENCE, connected, trusting

PATHS = [
    "/readyz",
    "/v1/snapshot",
    "/v1/events",
    "/v1/stream",
    "/v1/commands",
    "/v1/attempts/a.1.1/log",
    "/v1/attempts/a.1.1/files",
    "/v1/attempts/a.1.1/diff",
    "/v1/attempts/a.1.1/artefacts",
    "/no/such/path",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_without_the_bearer_every_path_answers_alike(stranger, method, path):
    answer = await stranger.request(method, path)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "unauthenticated"


async def test_health_is_open_and_says_nothing(stranger):
    answer = await stranger.get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok\n")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([("Authorization", "Bearer another")], id="another-token"),
        pytest.param([("Authorization", f"Bearer {TOKEN}x")], id="longer"),
        pytest.param([("Authorization", f"bearer {TOKEN}")], id="another-scheme"),
        pytest.param([("Authorization", TOKEN)], id="no-scheme"),
        pytest.param([("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")], id="twice"),
    ],
)
async def test_only_the_exact_bearer_is_let_in(stranger, headers):
    assert (await stranger.get("/v1/snapshot", headers=httpx.Headers(headers))).status_code == 401


async def test_an_old_token_is_refused_before_the_upgrade(server):
    with pytest.raises(InvalidStatus) as refused:
        async with connected(server, token="of-an-earlier-sandbox"):
            pass
    assert refused.value.response.status_code == 401


async def test_ready_echoes_who_answers(http):
    answer = await http.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "ready": True,
        "readiness": {"supervisor": "ok"},
        "instance": "instance-1",
        "specification": "sha256:00",
        "epoch": "epoch-1",
    }


async def test_not_ready_says_what_is_missing(server, http):
    server.supervisor.items = {"supervisor": "ok", "runner": "not connected"}
    answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["readiness"]["runner"] == "not connected"


def test_a_server_without_a_token_is_not_built():
    with pytest.raises(ValueError, match="token"):
        build(ScriptedSupervisor(), token="", identity=ServerIdentity(instance="", specification=""), tempo=Tempo())


def test_tls_older_than_1_2_is_not_spoken():
    assert server_context(certificate()).minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_pem_without_a_certificate_has_no_fingerprint():
    with pytest.raises(ValueError, match="no certificate"):
        fingerprint(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")


async def test_the_fingerprint_is_that_of_the_certificate_shown(server):
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting())
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    assert ssl.DER_cert_to_PEM_cert(shown).encode() in certificate()
    assert fingerprint(ssl.DER_cert_to_PEM_cert(shown).encode()) == server.fingerprint


async def test_a_connection_that_brings_no_request_is_closed():
    async with served(ScriptedSupervisor(), tempo=Tempo(silence=0.1)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting())
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: ")
        async with asyncio.timeout(PATIENCE):
            assert await read_to_the_end(reader) == b""
        writer.close()


async def test_a_connection_in_use_outlives_the_limit_for_silent_ones():
    tempo = Tempo(silence=1.0, heartbeat=0.4)
    async with served(ScriptedSupervisor(), tempo=tempo) as server, connected(server) as socket:
        await socket.send('{"type":"subscribe"}')
        for _ in range(4):  # a snapshot, and three heartbeats
            await asyncio.wait_for(socket.recv(), PATIENCE)


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
