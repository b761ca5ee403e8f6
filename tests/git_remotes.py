"""Real Git remotes for tests: bare repositories, and the same over real HTTP with faults on order."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sandbox_supervisor.protocol.git_rules import parse_url
from tasks_app.remotes import Remote

ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.invalid",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.invalid",
}


def git(folder: Path, *args: str, stdin: bytes | None = None, check: bool = True) -> str:
    """Run plain Git as a person would, and give its output."""
    done = subprocess.run(
        ["git", *args], cwd=folder, env=ENVIRONMENT, input=stdin, capture_output=True, check=False, timeout=60
    )
    if check and done.returncode:
        raise AssertionError(f"git {args}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode(errors="replace").strip()


@dataclass
class Project:
    """A bare remote and a person's clone of it, with one commit on ``main``."""

    remote: Path
    clone: Path
    base: str = ""

    def commit(self, files: dict[str, str | bytes], *, message: str = "change", onto: str = "") -> str:
        """Make a commit on a detached head in the clone and give its id; nothing is pushed."""
        git(self.clone, "checkout", "--quiet", "--detach", onto or self.base)
        for name, content in files.items():
            path = self.clone / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        git(self.clone, "add", "--all")
        git(self.clone, "commit", "--quiet", "--allow-empty", "--message", message)
        return git(self.clone, "rev-parse", "HEAD")

    def bundle(self, commit: str, *, branch: str, base: str = "", name: str = "delivery.bundle") -> Path:
        """Bundle ``base..commit`` as the supervisor does."""
        git(self.clone, "update-ref", f"refs/heads/{branch}", commit)
        path = self.clone.parent / name
        git(self.clone, "bundle", "create", str(path), f"refs/heads/{branch}", f"^{base or self.base}")
        git(self.clone, "update-ref", "-d", f"refs/heads/{branch}")
        return path

    def refs(self) -> dict[str, str]:
        """Every ref of the remote."""
        lines = git(self.remote, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split(" ") for line in lines)

    def move(self, branch: str, commit: str) -> None:
        """Put a commit on a branch of the remote behind the control plane's back."""
        git(self.clone, "push", "--quiet", "--force", str(self.remote), f"{commit}:refs/heads/{branch}")


def reach(address: str) -> Remote:
    """Give a remote without asking whether a workspace may use it."""
    return Remote(url=parse_url(address))


def make_project(folder: Path) -> Project:
    remote, clone = folder / "remote.git", folder / "clone"
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(remote))
    git(folder, "init", "--quiet", "--initial-branch=main", str(clone))
    project = Project(remote=remote, clone=clone)
    (clone / "README.md").write_text("hello\n")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "first")
    project.base = git(clone, "rev-parse", "HEAD")
    git(clone, "push", "--quiet", str(remote), "main")
    return project


@dataclass
class Faults:
    """What the HTTP server does wrong. ``after`` runs when the remote has done its work, before the answer is lost."""

    ask_password: bool = False
    status: int = 0  # every request is answered with it
    redirect_to: str = ""
    lose_push_answers: int = 0  # that many accepted pushes are never answered
    lost: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)
    before_push: Callable[[], None] | None = None


@dataclass
class HttpRemote:
    url: str
    faults: Faults


@contextmanager
def served(root: Path) -> Iterator[HttpRemote]:
    """Serve the bare repositories below ``root`` with ``git http-backend``; pushes are allowed."""
    faults = Faults()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline().strip() or b"0", 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self._answer(body)
            else:
                self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

        def _answer(self, body: bytes) -> None:
            faults.requests.append(self.path)
            if faults.ask_password:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.end_headers()
                return
            if faults.status or faults.redirect_to:
                self.send_response(faults.status or 302)
                if faults.redirect_to:
                    self.send_header("Location", faults.redirect_to + self.path)
                self.end_headers()
                return
            pushing = self.path.endswith("/git-receive-pack")
            if pushing and faults.before_push:
                faults.before_push()
            answer = self._backend(body)
            if pushing and faults.lose_push_answers:
                faults.lose_push_answers -= 1
                faults.lost.set()
                self.close_connection = True
                return
            self._send(answer)

        def _backend(self, body: bytes) -> bytes:
            path, _, query = self.path.partition("?")
            env = ENVIRONMENT | {
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REMOTE_USER": "dev",
                "REMOTE_ADDR": "127.0.0.1",
            }
            return subprocess.run(
                ["git", "http-backend"], env=env, input=body, capture_output=True, check=False, timeout=60
            ).stdout

        def _send(self, answer: bytes) -> None:
            head, _, body = answer.partition(b"\r\n\r\n")
            headers = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
            status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
            self.send_response(status)
            for name, value in headers:
                if name != "Status":
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield HttpRemote(url=f"http://127.0.0.1:{server.server_address[1]}", faults=faults)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
