"""Make what a local sandbox needs in tests: an image with stand-ins, a repository, a specification."""

import hashlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sandbox_providers.contract import Endpoint, Resources, SandboxSpec, Secret
from sandbox_providers.local import packages
from sandbox_providers.local.images import MANIFEST, Image
from sandbox_providers.local.layout import Layout
from sandbox_supervisor.protocol import codec, flow, handover
from sandbox_supervisor.protocol.spec import Repository, TaskInfo, TaskSpecification

ROOT = Path(__file__).parents[1]
STANDIN = ROOT / "tests" / "fixtures" / "standin"
STANDINS = {"supervise.py": "supervise.py", "runner_main.py": "runner/main.py"}
CANARIES = {
    "supervisor": {"task_token": "canary-task-a8f1e0", "dial_token": "canary-dial-77c2d9"},
    "materialise": {"download_token": "canary-load-3b6f55"},
}
WAIT = 60.0  # seconds; generous, because the suite shares two cores
T = TypeVar("T")


def make_image(state: Path, *, standins: bool = True) -> str:
    """Put the checkout's code, with stand-ins for supervisor and runner, where the provider looks for images."""
    digest = "sha256:" + hashlib.sha256(b"stand-in image" if standins else b"checkout image").hexdigest()
    place = Layout(state).image(digest)
    if not (place / MANIFEST).exists():
        shutil.copytree(
            ROOT / "sandbox_supervisor", place / "sandbox_supervisor", ignore=shutil.ignore_patterns("*.pyc")
        )
        for name, target in STANDINS.items() if standins else ():
            shutil.copyfile(STANDIN / name, place / "sandbox_supervisor" / target)
        packages.add_bwrap(place)
        handover.replace(place / MANIFEST, Image(digest=digest, python=sys.executable, version="test"))
    return digest


def git(*args: str, cwd: Path | None = None) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "Test", f"GIT_{who}_EMAIL": "test@example.org"}
    done = subprocess.run(["git", *args], cwd=cwd, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_repository(path: Path) -> str:
    """Make a repository with two commits on main; give the newest."""
    git("init", "--quiet", "--initial-branch=main", str(path))
    for content in ("one", "two"):
        (path / "file.txt").write_text(content)
        git("add", ".", cwd=path)
        git("commit", "--quiet", "-m", content, cwd=path)
    return git("rev-parse", "HEAD", cwd=path)


def task_specification(source: str, commit: str, **changes: str) -> TaskSpecification:
    fields = {
        "slug": "demo",
        "clone_url": source,
        "base_commit": commit,
        "base_ref": "main",
        "task_branch": "caisson/t",
    }
    return TaskSpecification(
        task=TaskInfo(id="tsk_1", title="Title", brief="Brief", creator="mia", workspace="main"),
        repository=Repository(**(fields | changes)),
        flow=flow.Flow(name="empty", nodes=()),
        nonce="n0nce",
    )


def sandbox_spec(
    specification: TaskSpecification, image: str, *, name: str = "cs-1", key: str = "tsk_1"
) -> SandboxSpec:
    return SandboxSpec(
        key=key,
        name=name,
        task_id=key,
        digest=codec.digest(specification),
        specification=codec.canonical(specification),
        image_digest=image,
        resources=Resources(),
    )


def secrets() -> dict[str, dict[str, Secret]]:
    return {who: {key: Secret(value) for key, value in values.items()} for who, values in CANARIES.items()}


def until(question: Callable[[], T | None], *, what: str = "it", seconds: float = WAIT) -> T:
    """Ask again until the answer is true; fail after a bounded wait."""
    ends_at = time.monotonic() + seconds
    while not (answer := question()):
        if time.monotonic() > ends_at:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.02)
    return answer


def call(endpoint: Endpoint, bearer: str) -> dict[str, object]:
    """Ask the stand-in supervisor who it is, over TLS with its fingerprint pinned."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((endpoint.host, endpoint.port), timeout=WAIT) as raw, context.wrap_socket(raw) as tls:
        shown = hashlib.sha256(tls.getpeercert(binary_form=True) or b"").hexdigest()
        assert shown == endpoint.fingerprint
        tls.sendall(bearer.encode() + b"\n")
        answer: dict[str, object] = json.loads(tls.recv(65536))
        return answer
