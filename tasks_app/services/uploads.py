"""Take files in chunks and keep them whole by digest, in whatever Storage is configured.

A row of the database remembers how many bytes have arrived; this module keeps the bytes. A chunk lies under its offset
until the file is whole, so that any worker can go on where another stopped.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from django.core.files.base import ContentFile, File
from django.core.files.storage import default_storage

from tasks_app.errors import Refused

CHUNK_LIMIT = 1024 * 1024


class DigestMismatch(Refused):
    """The bytes that arrived are not the ones that were announced; they are gone, the upload begins again."""

    default_code = "digest_mismatch"


def folder(row_id: str) -> str:
    return f"uploads/{row_id}"


def keep_chunk(place: str, offset: int, data: bytes) -> None:
    """Store one chunk; repeating it replaces it."""
    name = f"{place}/{offset:015d}"
    if default_storage.exists(name):
        default_storage.delete(name)
    default_storage.save(name, ContentFile(data))


def check(place: str, *, size: int, digest: str) -> None:
    """Raise DigestMismatch, after which the chunks are gone, unless they are ``size`` bytes with this digest."""
    _join(place, size, digest, None)


@contextmanager
def whole(place: str, *, size: int, digest: str) -> Iterator[IO[bytes]]:
    """Give the chunks joined in a temporary file, checked as in ``check``, at its beginning.

    The file has no name in a folder, so that a killed worker leaves nothing behind.
    """
    with tempfile.TemporaryFile() as file:
        _join(place, size, digest, file)
        file.flush()
        file.seek(0)
        yield file


def _join(place: str, size: int, digest: str, into: IO[bytes] | None) -> None:
    sha, length = hashlib.sha256(), 0
    for chunk in _chunks(place, size):
        sha.update(chunk)
        length += len(chunk)
        if into is not None:
            into.write(chunk)
    if length != size or f"sha256:{sha.hexdigest()}" != digest:
        discard(place)
        raise DigestMismatch("The uploaded bytes have not the digest that was announced; send them again.")


def _chunks(place: str, size: int) -> Iterator[bytes]:
    offset = 0
    while offset < size:
        name = f"{place}/{offset:015d}"
        if not default_storage.exists(name):
            return
        with default_storage.open(name) as file:
            data = file.read()
        if not data:
            return
        yield data
        offset += len(data)


def discard(place: str) -> None:
    """Remove the chunks of an upload. Repeating is safe."""
    try:
        _, names = default_storage.listdir(place)
    except FileNotFoundError:
        return
    for name in names:
        default_storage.delete(f"{place}/{name}")
    default_storage.delete(place)


def store(name: str, content: IO[bytes], *, size: int) -> None:
    """Keep a whole file under a name that stands for its content. A complete one that is there already stays."""
    if default_storage.exists(name):
        if default_storage.size(name) == size:
            return
        default_storage.delete(name)  # a crash left it short
    default_storage.save(name, File(content))
