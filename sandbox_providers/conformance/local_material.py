"""What local sandboxes are made of in a conformance run: image, repository, specification; and files that resist."""

import atexit
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from sandbox_providers.local.images import ensure_image
from sandbox_providers.local.layout import Layout
from sandbox_supervisor.protocol import codec, flow
from sandbox_supervisor.protocol.spec import Repository, TaskInfo, TaskSpecification

_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Conformance"), ("EMAIL", "conformance@caisson.invalid"))
}
_built: list[Path] = []  # the state directory in which this process has built the image


def shared_image(state: Path) -> str:
    """Build the image once per process; give each harness its own links to the same files."""
    if not _built:
        _built.append(Path(tempfile.mkdtemp(prefix="caisson-c-image-")))
        atexit.register(shutil.rmtree, _built[0], ignore_errors=True)
    digest = ensure_image(_built[0])
    built, wanted = Layout(_built[0]).image(digest), Layout(state).image(digest)
    wanted.parent.mkdir(parents=True)
    shutil.copytree(built, wanted, symlinks=True, copy_function=os.link)
    return digest


def specification(source: Path, commit: str) -> bytes:
    """Give the specification of a task without a single node, on ``commit`` of ``source``."""
    return codec.canonical(
        TaskSpecification(
            task=TaskInfo(id="tsk_c", title="Conformance", brief="", creator="conformance", workspace="main"),
            repository=Repository(
                slug="source",
                clone_url=str(source),
                base_commit=commit,
                base_ref="main",
                task_branch="caisson/conformance",
            ),
            flow=flow.Flow(name="empty", nodes=()),
            nonce="nonce",
        )
    )


def make_repository(path: Path) -> str:
    """Make a repository with one commit on main; give the commit."""

    def git(*args: str) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(path), "GIT_CONFIG_NOSYSTEM": "1"} | _IDENTITY
        command = ["git", "-C", str(path), *args]
        return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout.strip()

    path.mkdir()
    git("init", "--quiet", "--initial-branch=main")
    git("commit", "--quiet", "--allow-empty", "-m", "first")
    return git("rev-parse", "HEAD")


def set_immutable(fd: int, *, on: bool) -> None:
    """Let nobody change or remove a file, or let them again. Raises OSError where that is not possible."""
    (flags,) = struct.unpack("i", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("i", 0)))
    flags = flags | _IMMUTABLE if on else flags & ~_IMMUTABLE
    fcntl.ioctl(fd, _SET_FLAGS, struct.pack("i", flags))
