"""Turn protocol values into JSON and back, checked; and give the canonical bytes that digests are made of."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

DEEPEST = 64


class Malformed(ValueError):
    """Bytes or values that do not have the promised shape. The message names the path, never the value."""


def encode(value: Any) -> bytes:
    """Give compact JSON of dataclasses, enums and plain values."""
    return msgspec.json.encode(value)


def decode(data: bytes | str, into: type[T]) -> T:
    """Read JSON into ``into``; unknown fields are ignored. Raises Malformed, also for what is nested too deep."""
    try:
        return msgspec.json.decode(data, type=into)
    except msgspec.MsgspecError as error:
        raise Malformed(str(error)) from None
    except RecursionError:
        raise Malformed("JSON is nested too deep") from None


def convert(value: Any, into: type[T]) -> T:
    """Like ``decode``, from plain dicts and lists."""
    try:
        return msgspec.convert(value, type=into)
    except msgspec.MsgspecError as error:
        raise Malformed(str(error)) from None


def is_deep(value: Any) -> bool:
    """Say whether lists and mappings are nested more than ``DEEPEST`` times: such a value may be read and yet not be
    written, or be written where nobody can read it any more."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list | tuple) else ()


def plain(value: Any) -> Any:
    """Give the plain dicts, lists and scalars of a protocol value."""
    return msgspec.to_builtins(value)


def canonical(value: Any) -> bytes:
    """Give the bytes that stand for a value: keys sorted, no spaces, UTF-8."""
    return msgspec.json.encode(value, order="deterministic")


def digest(value: Any) -> str:
    """Give ``sha256:<hex>`` of the canonical bytes."""
    return "sha256:" + sha256(canonical(value)).hexdigest()
