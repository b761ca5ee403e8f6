"""Remotes that try to run something, that do not answer, or that are something else."""

import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sandbox_supervisor.materialise.repository import bring_in
from sandbox_supervisor.protocol import git_rules
from tests.fixtures.bound_only import bound_only
from tests.sandbox_folder import git, make_repository
from tests.supervisor.materialise.wanted import ABSENT, baseline, refusal, wanted

# --- what must not run -----------------------------------------------------------------------------------------------


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "marker"


@pytest.fixture
def hostile(source, head, marker):
    """A repository that tries to run a command on whoever reads from it."""
    script = f"#!/bin/sh\ntouch {marker}\n"
    hooks = source / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in (
        "pre-upload",
        "post-checkout",
        "reference-transaction",
        "pre-auto-gc",
        "fsmonitor-watchman",
        "post-index-change",
    ):
        (hooks / name).write_text(script)
        (hooks / name).chmod(0o755)
    program = source.parent / "program"
    program.write_text(script)
    program.chmod(0o755)
    settings = {
        "core.fsmonitor": program,
        "core.hooksPath": hooks,
        "core.alternateRefsCommand": program,
        "core.sshCommand": program,
        "core.gitProxy": program,
        "core.askPass": program,
        "core.pager": program,
        "credential.helper": f"!{program}",
        "uploadpack.packObjectsHook": program,
        "filter.evil.smudge": program,
        "filter.evil.clean": program,
        "diff.external": program,
        "gpg.program": program,
        "protocol.ext.allow": "always",
    }
    for key, value in settings.items():
        git("config", key, str(value), cwd=source)
    other = source.parent / "other"
    make_repository(other)
    (source / ".git" / "objects" / "info" / "alternates").write_text(f"{other}/.git/objects\n")
    return source


def test_the_trap_works(hostile, marker):
    git("status", cwd=hostile)
    assert marker.exists()


def test_nothing_that_a_hostile_repository_configures_is_run(hostile, head, target, marker):
    bring_in(target, wanted(hostile, head))
    assert baseline(target) == head
    assert not marker.exists()


def test_nothing_of_a_hostile_repository_is_run_when_it_fails(hostile, head, target, marker):
    refusal(target, wanted(hostile, ABSENT))
    assert not marker.exists()


def test_nothing_of_a_hostile_configuration_arrives(hostile, head, target):
    bring_in(target, wanted(hostile, head))
    config = (target / "config").read_text()
    assert "fsmonitor" not in config
    assert not (target / "objects" / "info" / "alternates").exists()


def test_the_users_own_configuration_is_not_read(source, head, target, monkeypatch, marker):
    home = marker.with_name("home")
    home.mkdir()
    (home / ".gitconfig").write_text(f'[url "ext::touch {marker}"]\n\tinsteadOf = /\n[protocol]\n\tallow = always\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_SSH_COMMAND", f"touch {marker}")
    bring_in(target, wanted(source, head))
    assert not marker.exists()


# --- remotes over the network ----------------------------------------------------------------------------------------


class Remote(BaseHTTPRequestHandler):
    status, body, hits = 404, b"", 0

    def do_GET(self):
        type(self).hits += 1
        self.send_response(self.status)
        if self.status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="private"')
        if self.status == 302:
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        pass


@contextmanager
def remote(status: int, body: bytes = b""):
    handler = type("Handler", (Remote,), {"status": status, "body": body, "hits": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/x.git", handler
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "auth_required"), (403, "auth_required"), (404, "repository_not_found"), (500, "remote_unreachable")],
)
def test_an_http_remote_that_refuses_is_told_apart(target, status, code):
    with remote(status) as (url, _):
        assert refusal(target, wanted(url, ABSENT)).code == code


def test_a_remote_that_asks_for_a_password_gets_no_prompt_and_no_wait(target):
    with remote(401) as (url, handler):
        started = time.monotonic()
        assert "credential" in refusal(target, wanted(url, ABSENT)).cause
        assert time.monotonic() - started < 60  # a prompt would wait for ever
        assert handler.hits <= 2


def test_a_redirect_is_not_followed(target):
    with remote(302) as (url, handler):
        refusal(target, wanted(url, ABSENT))
        assert handler.hits == 1


def test_nonsense_instead_of_a_repository_is_refused(target):
    with remote(200, b"<html>\x1b[2Jhello</html>") as (url, _):
        assert refusal(target, wanted(url, ABSENT)).code in {"repository_not_found", "clone_failed", "repository_empty"}


def test_a_remote_that_is_not_there_is_unreachable_at_once(target):
    with bound_only() as port:
        assert refusal(target, wanted(f"https://127.0.0.1:{port}/x.git", ABSENT)).code == "remote_unreachable"


@pytest.mark.slow
def test_a_remote_that_never_answers_is_unreachable_within_its_time(target):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        failed = refusal(target, wanted(f"http://127.0.0.1:{silent.getsockname()[1]}/x.git", ABSENT))
        assert failed.code == "remote_unreachable"
        assert time.monotonic() - started < 3 * git_rules.REMOTE_TIMEOUT


def test_an_ssh_remote_that_is_not_there_is_a_structured_failure(target):
    failed = refusal(target, wanted("ssh://git@127.0.0.1:9/x.git", ABSENT))
    assert failed.code in {"remote_unreachable", "clone_failed"}
