import asyncio
import random
from hashlib import sha256

import pytest

from sandbox_supervisor.control import ControlEnded, ControlRefused
from sandbox_supervisor.protocol.messages import DeliveryRequest, DeliveryState
from sandbox_supervisor.upload import CHUNK, STUCK
from tests.fixtures.scripted_control import CHUNK_LIMIT, Cut, Reply

BUNDLE = random.Random(7).randbytes(3 * CHUNK + 12_345)
CHUNKS = 4


def request_for(data: bytes, node: str = "deliver") -> DeliveryRequest:
    return DeliveryRequest(
        key=f"tsk_1:{node}:1:push",
        node=node,
        generation=1,
        round=1,
        base_commit="a" * 40,
        commit="b" * 40,
        bundle_digest="sha256:" + sha256(data).hexdigest(),
        bundle_size=len(data),
    )


@pytest.fixture
def bundle(tmp_path):
    path = tmp_path / "bundle"
    path.write_bytes(BUNDLE)
    return path


def chunks(plane) -> list[tuple[int, int]]:
    return [(int(r.query["offset"]), len(r.body)) for r in plane.requests if r.method == "PUT"]


async def test_a_bundle_arrives_in_chunks_and_whole(plane, client, socket_path, bundle):
    async with plane.listening(socket_path):
        answer = await client.deliver(request_for(BUNDLE), bundle)
    assert answer.state is DeliveryState.QUEUED
    assert plane.stored["dlv_deliver"].data == BUNDLE
    assert chunks(plane) == [(0, CHUNK), (CHUNK, CHUNK), (2 * CHUNK, CHUNK), (3 * CHUNK, 12_345)]
    assert CHUNK <= CHUNK_LIMIT


@pytest.mark.parametrize("cut_at", [(number, when) for number in range(1, CHUNKS + 1) for when in ("before", "after")])
async def test_a_cut_at_any_chunk_is_resumed_and_the_bytes_are_the_same(plane, client, socket_path, bundle, cut_at):
    number, when = cut_at

    def cut(request):
        if request.method == "PUT" and len(chunks(plane)) == number:
            raise Cut

    setattr(plane, when, cut)
    async with plane.listening(socket_path):
        answer = await client.deliver(request_for(BUNDLE), bundle)
    assert answer.state is DeliveryState.QUEUED
    assert plane.stored["dlv_deliver"].data == BUNDLE
    assert len(chunks(plane)) == CHUNKS + 1
    assert len(plane.deliveries) == 1


async def test_a_lost_answer_to_the_announcement_makes_no_second_delivery(plane, client, socket_path, bundle):
    def lose_the_first(request):
        if len(plane.requests) == 1:
            raise Cut

    plane.after = lose_the_first
    async with plane.listening(socket_path):
        await client.deliver(request_for(BUNDLE), bundle)
    assert len(plane.deliveries) == 1


async def test_a_restarted_supervisor_goes_on_where_the_earlier_one_stopped(plane, client, socket_path, bundle):
    def refuse_from_the_third(request):
        if request.method == "PUT" and len(chunks(plane)) >= 3:
            raise Cut

    plane.before = refuse_from_the_third
    async with plane.listening(socket_path):
        first = asyncio.create_task(client.deliver(request_for(BUNDLE), bundle))
        await plane.until(lambda: len(chunks(plane)) >= 3)
        first.cancel()
        await asyncio.wait({first})
        done = len(chunks(plane))
        plane.before = lambda request: None
        await client.deliver(request_for(BUNDLE), bundle)
    assert chunks(plane)[done:] == [(2 * CHUNK, CHUNK), (3 * CHUNK, 12_345)]
    assert plane.stored["dlv_deliver"].data == BUNDLE


async def test_repeating_a_finished_delivery_sends_nothing_again(plane, client, socket_path, bundle):
    async with plane.listening(socket_path):
        first = await client.deliver(request_for(BUNDLE), bundle)
        sent = len(chunks(plane))
        again = await client.deliver(request_for(BUNDLE), bundle)
    assert again == first
    assert len(chunks(plane)) == sent


async def test_nothing_to_deliver_needs_no_bundle(plane, client, socket_path):
    async with plane.listening(socket_path):
        answer = await client.deliver(request_for(b""), None)
        status = await client.delivery_status(answer.id)
    assert status.id == answer.id
    assert chunks(plane) == []


async def test_an_upload_waits_for_a_control_plane_that_is_away(plane, client, socket_path, bundle):
    sending = asyncio.create_task(client.deliver(request_for(BUNDLE), bundle))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not sending.done()
    async with plane.listening(socket_path):
        answer = await asyncio.wait_for(sending, 20)
    assert answer.state is DeliveryState.QUEUED


async def test_an_artefact_is_stored_under_its_digest_and_name(plane, client, socket_path, tmp_path):
    data = b"r" * (CHUNK + 1)
    path = tmp_path / "report"
    path.write_bytes(data)
    digest = sha256(data).hexdigest()
    async with plane.listening(socket_path):
        await client.upload_artefact(f"sha256:{digest}", path, "reports/ü&offset=9 .txt")
    assert plane.stored[f"artefacts/{digest}"].data == data
    assert plane.requests[0].query["name"] == "reports/ü&offset=9 .txt"
    assert plane.requests[0].query["offset"] == "0"


async def test_an_empty_artefact_is_stored_too(plane, client, socket_path, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    async with plane.listening(socket_path):
        await client.upload_artefact("sha256:" + "0" * 64, tmp_path / "empty", "empty")
    assert plane.stored["artefacts/" + "0" * 64].data == b""


@pytest.mark.parametrize("kind", ["snapshot", "capsule", "parked"])
async def test_an_archive_names_the_digest_of_what_follows(plane, client, socket_path, kind):
    async with plane.listening(socket_path):
        await client.archive(kind, b'{"epoch":"e"}')
    assert plane.stored[f"archive/{kind}"].data == b'{"epoch":"e"}'
    assert plane.requests[0].query["digest"] == "sha256:" + sha256(b'{"epoch":"e"}').hexdigest()


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
async def test_a_refusal_is_final_and_carries_its_code(plane, client, socket_path, bundle, status):
    plane.before = lambda request: Reply(status=status, body={"code": "bundle_too_large", "detail": "at most 512 MiB"})
    async with plane.listening(socket_path):
        with pytest.raises(ControlRefused) as refused:
            await client.deliver(request_for(BUNDLE), bundle)
    assert (refused.value.status, refused.value.code, refused.value.message) == (
        status,
        "bundle_too_large",
        "at most 512 MiB",
    )
    assert len(plane.requests) == 1


@pytest.mark.parametrize("status", [401, 410])
async def test_an_ended_task_takes_nothing_any_more(plane, client, socket_path, status):
    plane.before = lambda request: Reply(status=status, body={"code": "task_ended", "detail": "over"})
    async with plane.listening(socket_path):
        with pytest.raises(ControlEnded, match="task_ended"):
            await client.archive("snapshot", b"x")


async def test_a_refusal_without_a_problem_document_gets_a_code_from_its_status(plane, client, socket_path):
    plane.before = lambda request: Reply(status=418)
    async with plane.listening(socket_path):
        with pytest.raises(ControlRefused) as refused:
            await client.delivery_status("dlv_1")
    assert refused.value.code == "http_418"


async def test_a_busy_control_plane_is_asked_again(plane, client, socket_path, bundle):
    plane.before = lambda request: Reply(status=429) if len(plane.requests) in {1, 3, 4} else None
    async with plane.listening(socket_path):
        await client.deliver(request_for(BUNDLE), bundle)
    assert plane.stored["dlv_deliver"].data == BUNDLE


@pytest.mark.parametrize("offset", [-1, 10**12, "5", None])
async def test_a_receiver_that_names_an_impossible_offset_is_not_followed(plane, client, socket_path, offset):
    plane.before = lambda request: Reply(body={"offset": offset})
    async with plane.listening(socket_path):
        with pytest.raises(ControlRefused) as refused:
            await client.archive("capsule", b"x" * 100)
    assert refused.value.code == "upload_stuck"
    assert len(plane.requests) == 1


async def test_a_receiver_that_never_advances_is_given_up(plane, client, socket_path):
    plane.before = lambda request: Reply(body={"offset": 0, "complete": False})
    async with plane.listening(socket_path):
        with pytest.raises(ControlRefused) as refused:
            await client.archive("capsule", b"x" * 100)
    assert refused.value.code == "upload_stuck"
    assert len(plane.requests) == STUCK


async def test_an_answer_without_end_is_not_read_to_its_end(plane, client, socket_path):
    plane.before = lambda request: Reply(body="x" * 2_000_000) if len(plane.requests) == 1 else Reply(status=404)
    async with plane.listening(socket_path):
        with pytest.raises(ControlRefused):
            await client.delivery_status("dlv_1")
    assert len(plane.requests) == 2


async def test_ids_cannot_climb_out_of_their_path(plane, client, socket_path):
    async with plane.listening(socket_path):
        with pytest.raises(ControlRefused):
            await client.delivery_status("../heartbeat?x=1")
    assert plane.requests[0].path == "/internal/v1/deliveries/..%2Fheartbeat%3Fx%3D1"


@pytest.mark.parametrize("body", ["a sentence", ["a", "list"], None])
async def test_an_answer_that_is_not_the_control_planes_is_asked_for_again(plane, client, socket_path, bundle, body):
    plane.before = lambda request: Reply(body=body) if len(plane.requests) in {1, 3} else None
    async with plane.listening(socket_path):
        await client.deliver(request_for(BUNDLE), bundle)
    assert plane.stored["dlv_deliver"].data == BUNDLE
