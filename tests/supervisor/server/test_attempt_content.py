from dataclasses import replace
from hashlib import sha256

import pytest

from sandbox_supervisor.protocol.messages import AttemptView
from sandbox_supervisor.protocol.states import AttemptState
from sandbox_supervisor.server.byte_ranges import CHUNK
from sandbox_supervisor.server.facade import Gone

LOG = bytes(range(256)) * 4
VIEW = AttemptView(id="a.1.1", node="a", generation=1, n=1, state=AttemptState.SUCCEEDED)


@pytest.mark.parametrize(
    ("wanted", "expected", "shown"),
    [
        ("bytes=0-0", LOG[:1], "bytes 0-0/1024"),
        ("bytes=10-19", LOG[10:20], "bytes 10-19/1024"),
        ("bytes=1000-", LOG[1000:], "bytes 1000-1023/1024"),
        ("bytes=1000-9999", LOG[1000:], "bytes 1000-1023/1024"),
        ("bytes=-24", LOG[-24:], "bytes 1000-1023/1024"),
        ("bytes=-9999", LOG, "bytes 0-1023/1024"),
    ],
)
async def test_one_range_of_a_log_is_answered_exactly(server, http, wanted, expected, shown):
    server.supervisor.outputs["a.1.1.stdout"] = LOG
    answer = await http.get("/v1/attempts/a.1.1/log", headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (206, expected)
    assert answer.headers["content-range"] == shown


@pytest.mark.parametrize("wanted", ["bytes=0-1,5-6", "lines=1-2", "bytes=-", "bytes=x-y"])
async def test_a_range_that_is_not_understood_gives_the_whole(server, http, wanted):
    server.supervisor.outputs["a.1.1.stdout"] = LOG
    answer = await http.get("/v1/attempts/a.1.1/log", headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (200, LOG)


@pytest.mark.parametrize("wanted", ["bytes=1024-", "bytes=9999-10000", "bytes=20-10", "bytes=-0"])
async def test_a_range_outside_the_content_names_its_size(server, http, wanted):
    server.supervisor.outputs["a.1.1.stdout"] = LOG
    answer = await http.get("/v1/attempts/a.1.1/log", headers={"Range": wanted})
    assert (answer.status_code, answer.json()["size"]) == (416, 1024)


async def test_a_log_of_many_chunks_arrives_whole(server, http):
    whole = b"0123456789abcdef" * (CHUNK // 5)
    server.supervisor.outputs["a.1.1.stderr"] = whole
    answer = await http.get("/v1/attempts/a.1.1/log", params={"stream": "stderr"})
    assert sha256(answer.content).digest() == sha256(whole).digest()
    assert answer.headers["x-caisson-dropped-bytes"] == "0"


@pytest.mark.parametrize("path", ["log", "files/content?path=page.html", "diff"])
async def test_a_strangers_content_is_never_shown_as_a_page(server, http, path):
    server.supervisor.outputs["a.1.1.stdout"] = b"<script>alert(1)</script>"
    server.supervisor.files["page.html"] = b"<script>alert(1)</script>"
    answer = await http.get(f"/v1/attempts/a.1.1/{path}")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"].startswith("sandbox")


async def test_a_file_name_cannot_break_out_of_its_header(server, http):
    path = 'dir/a"; filename=evil.html\r\nX-Evil: 1é'
    server.supervisor.files[path] = b"x"
    answer = await http.get("/v1/attempts/a.1.1/files/content", params={"path": path})
    assert answer.status_code == 200
    assert "x-evil" not in answer.headers
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''a%22%3B")


async def test_a_file_that_has_not_changed_is_not_sent_again(server, http):
    server.supervisor.files["a.txt"] = b"hello"
    first = await http.get("/v1/attempts/a.1.1/files/content", params={"path": "a.txt"})
    headers = {"If-None-Match": first.headers["etag"]}
    again = await http.get("/v1/attempts/a.1.1/files/content", params={"path": "a.txt"}, headers=headers)
    server.supervisor.files["a.txt"] = b"other"
    changed = await http.get("/v1/attempts/a.1.1/files/content", params={"path": "a.txt"}, headers=headers)
    assert (again.status_code, again.content) == (304, b"")
    assert (changed.status_code, changed.content) == (200, b"other")


async def test_a_range_of_another_version_gives_the_whole_new_one(server, http):
    server.supervisor.files["a.txt"] = b"hello"
    headers = {"Range": "bytes=0-1", "If-Range": '"of-another-version"'}
    answer = await http.get("/v1/attempts/a.1.1/files/content", params={"path": "a.txt"}, headers=headers)
    assert (answer.status_code, answer.content) == (200, b"hello")


async def test_an_empty_file_is_empty(server, http):
    server.supervisor.files["empty"] = b""
    answer = await http.get("/v1/attempts/a.1.1/files/content", params={"path": "empty"})
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("b.1.1/log", 404),
        ("a.1.1/log?stream=stdin", 400),
        ("a.1.1/log?offset=3", 400),
        ("a.1.1/files/content", 400),
        ("a.1.1/files/content?path=gone", 404),
        ("b.1.1/artefacts", 404),
        ("a.1.1/artefacts/sha256:00", 404),
        ("a.1.1/diff?x=1", 400),
    ],
)
async def test_what_is_not_there_is_a_problem(server, http, path, status):
    server.supervisor.attempts = (VIEW,)
    server.supervisor.outputs["a.1.1.stdout"] = b""
    answer = await http.get(f"/v1/attempts/{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


async def test_files_are_listed(server, http):
    server.supervisor.files["b.txt"] = b"12"
    assert (await http.get("/v1/attempts/a.1.1/files", params={"path": ""})).json() == [
        {"name": "b.txt", "type": "file", "size": 2}
    ]


async def test_an_artefact_is_served_only_through_an_attempt_that_refers_to_it(server, http):
    data = b"report" * 100_000
    digest = "sha256:" + sha256(data).hexdigest()
    server.supervisor.stored[digest] = data
    entry = {"name": "report.txt", "path": "out/report.txt", "digest": digest, "size": len(data)}
    server.supervisor.attempts = (replace(VIEW, artefacts=(entry,)), replace(VIEW, id="b.1.1"))
    listed = (await http.get("/v1/attempts/a.1.1/artefacts")).json()
    answer = await http.get(f"/v1/attempts/a.1.1/artefacts/{digest}")
    elsewhere = await http.get(f"/v1/attempts/b.1.1/artefacts/{digest}")
    assert listed == [entry]
    assert answer.content == data
    assert answer.headers["etag"] == f'"{digest}"'
    assert elsewhere.status_code == 404


async def test_a_runner_that_is_away_is_said_so(server, http, monkeypatch):
    async def away(*_: object) -> list[dict[str, object]]:
        raise Gone("the runner is not connected")

    monkeypatch.setattr(server.supervisor, "attempt_files", away)
    answer = await http.get("/v1/attempts/a.1.1/files")
    assert (answer.status_code, answer.json()["code"]) == (503, "gone")
