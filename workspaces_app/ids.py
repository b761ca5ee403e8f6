"""Sortable, prefixed identifiers: ``tsk_01j…``, time first, then randomness, in Crockford's base 32."""

import secrets
import time
from functools import partial

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
LENGTH = 26  # 48 bits of milliseconds and 80 random bits
MAX_LENGTH = 32  # with the prefix; the size of the columns


def new_id(prefix: str) -> str:
    """Make ``<prefix>_<26 characters>``; ids made in different milliseconds sort by time."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    digits = []
    for _ in range(LENGTH):
        number, digit = divmod(number, 32)
        digits.append(ALPHABET[digit])
    return f"{prefix}_{''.join(reversed(digits))}"


def looks_like_id(text: str, prefix: str) -> bool:
    """Say whether ``text`` has the shape that ``new_id(prefix)`` gives."""
    head, _, tail = text.partition("_")
    return head == prefix and len(tail) == LENGTH and all(character in ALPHABET for character in tail)


new_workspace_id = partial(new_id, "wsp")
new_repository_id = partial(new_id, "rep")
