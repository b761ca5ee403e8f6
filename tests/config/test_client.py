"""The command line's client waits for a console that is away, and takes a no for a no."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from config.commands.client import ApiProblem, Client

PROBLEM = "application/problem+json"
Answer = tuple[int, str, dict[str, Any]]


@pytest.fixture
def console() -> Iterator[Callable[..., Client]]:
    """Make a client of a server that gives these answers, one after another."""
    servers: list[HTTPServer] = []

    def make(*answers: Answer) -> Client:
        left = iter(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = next(left)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: Any) -> None:
                """Stay quiet."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return Client(url=f"http://127.0.0.1:{server.server_port}", token="t")

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "away",
    [
        (502, "text/html", {}),
        (503, PROBLEM, {"code": "unavailable", "detail": "The database does not answer now."}),
        (429, PROBLEM, {"code": "throttled"}),
    ],
    ids=["a proxy's error", "a busy database", "too many calls"],
)
def test_a_call_is_repeated_until_the_console_has_an_answer(console, away):
    assert console(away, (200, "application/json", {"id": 1})).get("/tasks") == {"id": 1}


def test_a_sandbox_that_does_not_answer_is_an_answer(console):
    client = console((503, PROBLEM, {"code": "sandbox_unreachable", "detail": "It does not answer."}))
    with pytest.raises(ApiProblem) as refused:
        client.get("/tasks")
    assert (refused.value.status, refused.value.code) == (503, "sandbox_unreachable")
