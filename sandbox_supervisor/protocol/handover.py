"""Hand data from process to process: small files whole or not at all, secrets without a disk. Linux."""

import fcntl
import os
from pathlib import Path
from typing import TypeVar

from sandbox_supervisor.protocol import codec

T = TypeVar("T")
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def write_once(path: Path, value: object) -> bool:
    """Create ``path`` with ``value``; False, and nothing changed, if it exists already."""
    draft = _draft(path, codec.encode(value))
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def replace(path: Path, value: object) -> None:
    replace_bytes(path, codec.encode(value))


def replace_bytes(path: Path, data: bytes) -> None:
    _draft(path, data).rename(path)


def read(path: Path, into: type[T]) -> T | None:
    """Read a value back; None if the file is not there. Raises codec.Malformed."""
    try:
        return codec.decode(path.read_bytes(), into)
    except FileNotFoundError:
        return None


def _draft(path: Path, data: bytes) -> Path:
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    return draft


def memory_file(name: str, data: bytes) -> int:
    """Give a descriptor of a sealed file that exists in memory only, positioned at its start. The caller closes it."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def read_to_end(fd: int, limit: int) -> bytes:
    """Read until the other side has closed. Raises ValueError beyond ``limit`` bytes."""
    parts: list[bytes] = []
    size = 0
    while chunk := os.read(fd, 65536):
        size += len(chunk)
        if size > limit:
            raise ValueError(f"more than {limit} bytes")
        parts.append(chunk)
    return b"".join(parts)
