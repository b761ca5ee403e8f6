"""Make texts of sandboxes fit to be kept and shown."""

import re
import unicodedata

_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def clean_line(text: str, limit: int) -> str:
    """Give text as one line without control or invisible characters, cut to ``limit`` characters."""
    kept = "".join(" " if character.isspace() else character for character in text)
    kept = "".join(character for character in kept if unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co"})
    return " ".join(kept.split())[:limit]


def clean_text(text: str, limit: int) -> str:
    """Give text without control characters but line ends and tabs, cut to ``limit`` characters."""
    kept = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in kept if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"})[:limit]


def without_nul(document: bytes) -> bytes:
    """Give a JSON document in which each NUL is a replacement character: PostgreSQL keeps none in a text.

    An agent decides what a result says, and a result must not keep a task from ending.
    """
    return _NUL.sub(rb"\1\\ufffd", document) if rb"\u0000" in document else document
