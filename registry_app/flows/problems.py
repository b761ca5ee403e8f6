"""What is wrong with a flow file, and where."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

Step = str | int
Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """``code`` is stable, ``pointer`` a JSON Pointer; ``line`` and ``column`` count from 1; ``hint`` may be empty."""

    code: str
    pointer: str
    line: int
    column: int
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem as a check sees it: a path in the document instead of a place in the file."""

    code: str
    path: Path
    message: str
    hint: str = ""
    lines: int = 0  # further down from where the path points, inside a block of text


def pointer(path: Sequence[Step]) -> str:
    """Give the JSON Pointer (RFC 6901) of a path."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def guess(word: object, known: Collection[str]) -> str:
    """Say what may have been meant, or what there is to choose from."""
    close = get_close_matches(str(word), list(known), n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known here: {', '.join(sorted(known))}." if 0 < len(known) <= 30 else ""


def brief(value: object) -> str:
    """Show a value of the file in a message: short, on one line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
