"""Read a unified diff into files and numbered lines, for a table that shows it. Never trusts what it reads."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")
LINES_SHOWN = 400  # of one file before the rest is folded away
LINE_LENGTH = 2_000  # characters of one line that are shown
FILES_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Line:
    """``kind`` is add, del, same or hunk; the numbers are those of the old and the new file."""

    kind: str
    text: str
    old: int | None = None
    new: int | None = None


@dataclass(slots=True)
class FileDiff:
    path: str
    was: str = ""  # the old name of a renamed file
    note: str = ""  # new, deleted, renamed, binary, mode
    added: int = 0
    removed: int = 0
    lines: list[Line] = field(default_factory=list)
    hidden: int = 0  # lines beyond LINES_SHOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    files: tuple[FileDiff, ...]
    cut: bool = False  # more than FILES_SHOWN files

    @property
    def added(self) -> int:
        return sum(each.added for each in self.files)

    @property
    def removed(self) -> int:
        return sum(each.removed for each in self.files)


def read(data: bytes) -> Diff:
    """Read what ``git diff`` writes; bytes that are no UTF-8 are shown as replacement characters."""
    files: list[FileDiff] = []
    for block in _blocks(data.decode("utf-8", errors="replace")):
        if len(files) == FILES_SHOWN:
            return Diff(files=tuple(files), cut=True)
        files.append(_file(block))
    return Diff(files=tuple(files))


def _blocks(text: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            if block:
                yield block
            block = [line]
        elif block:
            block.append(line)
    if block:
        yield block


def _file(block: list[str]) -> FileDiff:
    found = FileDiff(path=_path_of(block[0]))
    old = new = 0
    for line in block[1:]:
        if match := HUNK.fullmatch(line):
            old, new = int(match[1]), int(match[2])
            _keep(found, Line("hunk", match[3]))
        elif old == new == 0:
            _header(found, line)
        else:
            old, new = _body(found, line, old, new)
    return found


def _body(found: FileDiff, line: str, old: int, new: int) -> tuple[int, int]:
    mark, text = line[:1], line[1 : LINE_LENGTH + 1]
    if mark == "+":
        found.added += 1
        _keep(found, Line("add", text, None, new))
        return old, new + 1
    if mark == "-":
        found.removed += 1
        _keep(found, Line("del", text, old, None))
        return old + 1, new
    if mark == " ":
        _keep(found, Line("same", text, old, new))
        return old + 1, new + 1
    return old, new  # "\ No newline at end of file", or the empty end of the text


def _keep(found: FileDiff, line: Line) -> None:
    if len(found.lines) < LINES_SHOWN:
        found.lines.append(line)
    else:
        found.hidden += 1


def _header(found: FileDiff, line: str) -> None:
    for prefix, note in (
        ("new file", "new"),
        ("deleted file", "deleted"),
        ("Binary files", "binary"),
        ("GIT binary patch", "binary"),
        ("old mode", "mode changed"),
    ):
        if line.startswith(prefix):
            found.note = note
    if line.startswith("rename from "):
        found.was, found.note = line.removeprefix("rename from "), "renamed"
    elif line.startswith("+++ b/"):
        found.path = line.removeprefix("+++ b/").rstrip("\t")
    elif line.startswith("rename to "):
        found.path = line.removeprefix("rename to ")


def _path_of(line: str) -> str:
    """Give a name for the file from its first line; ``+++`` or ``rename to`` give the exact one where they stand."""
    half = line.removeprefix("diff --git a/")
    middle = (len(half) - len(" b/")) // 2
    return half[:middle] if half[middle:] == f" b/{half[:middle]}" else half
