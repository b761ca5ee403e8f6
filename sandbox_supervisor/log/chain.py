"""The hash chain over events and transitions: what makes a missing or altered row visible."""

from hashlib import blake2b
from typing import NamedTuple

import msgspec

SIZE = 32
_encode = msgspec.json.Encoder().encode


class EventRecord(NamedTuple):
    """An event as the table holds it. ``data`` is canonical JSON."""

    seq: int
    at: str
    kind: str
    node: str | None
    generation: int | None
    attempt: str | None
    data: str


class ChangeRecord(NamedTuple):
    """A transition as the table holds it: its rows (events aside) as canonical JSON, and the events it numbered."""

    id: int
    first_seq: int
    last_seq: int
    body: bytes


def genesis(epoch: str, what: str) -> bytes:
    """Give what the first link of a chain builds on."""
    return blake2b(f"{what}\0{epoch}".encode(), digest_size=SIZE).digest()


def link_event(previous: bytes, record: EventRecord) -> bytes:
    return blake2b(previous + _encode(record), digest_size=SIZE).digest()


def link_change(previous: bytes, record: ChangeRecord) -> bytes:
    head = _encode((record.id, record.first_seq, record.last_seq))
    return blake2b(previous + head + record.body, digest_size=SIZE).digest()


def row_check(table: str, key: str, rev: int, body: bytes) -> bytes:
    """Give the check value that is stored beside a row."""
    return blake2b(f"{table}\0{key}\0{rev}\0".encode() + body, digest_size=16).digest()
