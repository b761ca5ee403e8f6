"""What a scripted agent does to its tree: edits that no link leads outside, and shell commands."""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path, PurePosixPath

from sandbox_supervisor.protocol.playbook import Edit, EditKind

OUTPUT_LIMIT = 64 * 1024
FILE_LIMIT = 4 * 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Impossible(Exception):  # what the step is
    """A step that cannot be done as it is written."""


def edit(cwd: Path, action: Edit, text: str) -> tuple[str, str]:
    """Carry out an edit; give the old and the new text. Raises Impossible, OSError."""
    parts = PurePosixPath(action.path).parts
    folder = _open_folder(cwd, parts[:-1], create=action.kind in {EditKind.CONTENT, EditKind.APPEND})
    try:
        old = _read(folder, parts[-1])
        new = _changed(action, old, text)
        if action.kind is EditKind.DELETE:
            os.unlink(parts[-1], dir_fd=folder)
        else:
            _write(folder, parts[-1], new)
    finally:
        os.close(folder)
    return old or "", new


def _changed(action: Edit, old: str | None, text: str) -> str:
    match action.kind:
        case EditKind.CONTENT:
            return text
        case EditKind.APPEND:
            return (old or "") + text
        case EditKind.DELETE if old is not None:
            return ""
        case EditKind.REPLACE if old is not None and action.old in old:
            return old.replace(action.old, text, 1)
        case EditKind.REPLACE if old is not None:
            raise Impossible(f"{action.path} does not contain the text to be replaced")
    raise Impossible(f"{action.path} does not exist")


def _open_folder(root: Path, parts: tuple[str, ...], *, create: bool) -> int:
    """Open a folder step by step, so that no step is a link."""
    fd = os.open(root, _FOLDER)
    for part in parts:
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
            below = os.open(part, _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def _read(folder: int, name: str) -> str | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        data = file.read(FILE_LIMIT + 1) or b""
    if len(data) > FILE_LIMIT:
        raise Impossible(f"{name} is larger than {FILE_LIMIT} bytes")
    return data.decode("utf-8", "surrogateescape")


def _write(folder: int, name: str, text: str) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))


async def run(cwd: Path, command: str) -> tuple[int, str]:
    """Run a shell command; give exit code and the end of its output. A cancel kills its process group."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", command, cwd=cwd, env=env, start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None  # noqa: S101  # a pipe was asked for
    kept = b""
    try:
        while data := await process.stdout.read(OUTPUT_LIMIT):
            kept = (kept + data)[-OUTPUT_LIMIT:]
        code = await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return code, kept.decode("utf-8", "replace")


def write_stderr(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(2, view) :]


def fork_daemon(seconds: float) -> None:
    """Leave a process behind that has forked twice, has a session of its own and no environment."""
    subprocess.run(
        ["/bin/sh", "-c", 'env -i sleep "$1" &', "sh", str(seconds)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        check=False,
    )  # fmt: skip
