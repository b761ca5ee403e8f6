"""What is wrong with a flow file, and where."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

Step = str | int
MAX_PROBLEMS = 100  # that one answer tells
MAX_NAME = 100  # characters of a word that a hint is looked for
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


def told(problem: Problem, file: str) -> str:
    """Give a problem as one line for a terminal."""
    where = plain(problem.pointer or "/", 200)
    place = f"{file}:{problem.line}:{problem.column}: {problem.code} at {where}"
    return f"{place}: {problem.message} {problem.hint}".rstrip()


def counted(problems: Sequence[Problem]) -> str:
    return f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem as a check sees it: a path in the document instead of a place in the file."""

    code: str
    path: Path
    message: str
    hint: str = ""
    lines: int = 0  # further down from where the path points, inside a block of text


def distinct(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Give each finding once, in the order in which they come."""
    seen: set[Finding] = set()
    for finding in findings:
        if finding not in seen:
            seen.add(finding)
            yield finding


def pointer(path: Sequence[Step]) -> str:
    """Give the JSON Pointer (RFC 6901) of a path."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def guess(word: object, known: Collection[str]) -> str:
    """Say what may have been meant, or what there is to choose from."""
    names = [name for name in known if len(name) <= MAX_NAME]
    close = get_close_matches(str(word)[:MAX_NAME], names, n=1)
    if close:
        return f"Did you mean {brief(close[0])}?"
    return f"Known here: {', '.join(map(plain, sorted(names)))}." if 0 < len(names) <= 30 else ""


def brief(value: object) -> str:
    """Show a value of the file in a message: quoted, short, on one line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def plain(text: str, limit: int = 64) -> str:
    """Show a name of the file in a message as it stands, but short, on one line and without control characters."""
    shown = "".join(sign if sign.isprintable() else "\ufffd" for sign in text[: limit + 1])
    return shown if len(shown) <= limit else shown[:limit] + "…"
