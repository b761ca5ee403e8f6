"""Read one YAML document from standard input, in a process of its own that a hostile file can only end.

YAML 1.2 core schema: plain ``no``, ``on``, ``1:30`` and dates are strings. The answer on standard output is JSON:
``{"data": …, "marks": {pointer: [line, column, text offset]}}`` or ``{"problems": [[code, pointer, line, column,
message, hint], …]}``. The parser's events are read one by one with a stack of our own: nesting cannot exhaust anything.

Run as a file (``python -I reader.py``): it imports nothing of the project.
"""

import json
import re
import resource
import sys
from typing import Any

import yaml

CPU_SECONDS = 2
MEMORY = 256 * 1024 * 1024
MAX_DEPTH = 20
MAX_ALIASES = 100
MAX_VALUES = 50_000  # after expansion
MAX_TEXT = 2 * 1024 * 1024  # characters, after expansion
MAX_PROBLEMS = 101  # one more than are told

_NULL = re.compile(r"(?:null|Null|NULL|~|)\Z")
_TRUE = re.compile(r"(?:true|True|TRUE)\Z")
_FALSE = re.compile(r"(?:false|False|FALSE)\Z")
_DECIMAL = re.compile(r"[-+]?[0-9]{1,18}\Z")
_OCTAL = re.compile(r"0o[0-7]{1,20}\Z")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,15}\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?\Z")


_HINTS = (  # words of the parser → what mostly is the matter
    ("mapping values are not allowed", "Put a text that holds ': ' in quotes; or the line is indented too far."),
    ("did not find expected '-'", "Lines of one list entry begin in one column, right of its '-'."),
    ("did not find expected key", "Lines of one mapping begin in one column; look at the line above, too."),
    ("cannot start any token", "Indent with spaces, not with tabs; put a text that begins with % @ or ` in quotes."),
    ("did not find expected ','", "A comma or a bracket is missing, or a text with , { } [ ] is not in quotes."),
    ("unexpected end of stream", "A quote or a bracket above is not closed."),
    ("block sequence entries are not allowed", "A list begins in a line of its own, below its key."),
    ("unknown escape", "In double quotes a backslash is written twice; or use single quotes."),
)


class Stop(Exception):
    """Nothing sensible can be read after this."""


class Value:
    """A finished value, and what copying it costs."""

    __slots__ = ("data", "text", "values")

    def __init__(self, data: Any, values: int, text: int) -> None:
        self.data = data
        self.values = values
        self.text = text


class Frame:
    """A mapping or sequence that is being read."""

    __slots__ = ("anchor", "data", "key", "mapping", "path", "text", "values")

    def __init__(self, *, mapping: bool, path: str, anchor: str | None) -> None:
        self.mapping = mapping
        self.path = path
        self.anchor = anchor
        self.data: Any = {} if mapping else []
        self.key: str | None = None
        self.values = 1
        self.text = 0


class Reader:
    def __init__(self) -> None:
        self.problems: list[list[Any]] = []
        self.marks: dict[str, list[int]] = {}
        self.anchors: dict[str, Value] = {}
        self.open_anchors: set[str] = set()
        self.stack: list[Frame] = []
        self.aliases = 0
        self.values = 0
        self.text = 0
        self.root: Value | None = None
        self.skipped = 0

    def problem(self, code: str, mark: Any, message: str, hint: str = "", path: str | None = None) -> None:
        where = self._here() if path is None else path
        self.problems.append([code, where, mark.line + 1, mark.column + 1, message, hint])
        if len(self.problems) >= MAX_PROBLEMS:
            raise Stop

    def fatal(self, code: str, mark: Any, message: str, hint: str = "") -> None:
        self.problem(code, mark, message, hint)
        raise Stop

    def read(self, text: str) -> None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        documents = 0
        event: Any
        for event in yaml.parse(text, Loader=loader):
            name = type(event).__name__
            if name == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    self.fatal("yaml_documents", event.start_mark, "A flow file holds one document.")
                if event.tags or (event.version and event.version != (1, 2)):
                    self.fatal("yaml_directive", event.start_mark, "Only YAML 1.2 without tag directives is read.")
            elif name in _EVENTS:
                _EVENTS[name](self, event)

    def scalar(self, event: Any) -> None:
        frame = self.stack[-1] if self.stack else None
        if frame is not None and frame.mapping and frame.key is None:
            self._key(frame, event)
            return
        self._tag(event)
        data = event.value
        if event.implicit[0] and not event.style:
            data = self._plain(event)
        offset = 1 if event.style in ("|", ">") else 0
        self._mark(event, offset)
        self._add(Value(data, 1, len(event.value)), event)

    def start(self, event: Any, *, mapping: bool) -> None:
        if len(self.stack) >= MAX_DEPTH:
            self.fatal("yaml_depth", event.start_mark, f"The file is nested deeper than {MAX_DEPTH} levels.")
        if self.stack and self.stack[-1].mapping and self.stack[-1].key is None:
            hint = 'Put a text that begins with {{ in quotes: "{{ task.brief }}".' if mapping else ""
            self.fatal("yaml_key", event.start_mark, "A key is plain text, not a list or a mapping.", hint)
        self._tag(event)
        self._mark(event, 0)
        if event.anchor:
            self.open_anchors.add(event.anchor)
        self.stack.append(Frame(mapping=mapping, path=self._here(), anchor=event.anchor))

    def end(self, event: Any) -> None:
        frame = self.stack.pop()
        if frame.anchor:
            self.open_anchors.discard(frame.anchor)
            self.anchors[frame.anchor] = Value(frame.data, frame.values, frame.text)
        self._place(Value(frame.data, frame.values, frame.text), event)

    def alias(self, event: Any) -> None:
        if self.stack and self.stack[-1].mapping and self.stack[-1].key is None:
            self.fatal("yaml_key", event.start_mark, "A key is plain text, not an alias.")
        self.aliases += 1
        if self.aliases > MAX_ALIASES:
            self.fatal("yaml_aliases", event.start_mark, f"The file uses more than {MAX_ALIASES} aliases.")
        if event.anchor in self.open_anchors:
            self.fatal("yaml_alias_cycle", event.start_mark, f"The alias *{event.anchor} stands inside what it names.")
        value = self.anchors.get(event.anchor)
        if value is None:
            self.fatal("yaml_alias_unknown", event.start_mark, f"There is no anchor &{event.anchor} above.")
            return
        self._mark(event, 0)
        self._add(value, event)

    def _key(self, frame: Frame, event: Any) -> None:
        self._tag(event)
        key = event.value
        if key in frame.data:
            where = frame.path + _step(key)
            line = self.marks[where][0] if where in self.marks else 0
            self.problem(
                "yaml_duplicate_key",
                event.start_mark,
                f"The key {key[:80]!r} stands twice here.",
                f"First in line {line}.",
                where,
            )
        frame.key = key
        self.marks.setdefault(frame.path + _step(key), [event.start_mark.line + 1, event.start_mark.column + 1, 0])

    def _tag(self, event: Any) -> None:
        if event.tag is not None and event.tag not in (
            "!",
            "tag:yaml.org,2002:str",
            "tag:yaml.org,2002:map",
            "tag:yaml.org,2002:seq",
        ):
            self.problem(
                "yaml_tag", event.start_mark, f"The tag {event.tag[:80]!r} is not read.", "Write the value plainly."
            )

    def _plain(self, event: Any) -> Any:
        text = event.value
        if _NULL.match(text):
            return None
        if _TRUE.match(text) or _FALSE.match(text):
            return bool(_TRUE.match(text))
        if _DECIMAL.match(text):
            return int(text)
        if _OCTAL.match(text) or _HEX.match(text):
            return int(text, 0)
        if _FLOAT.match(text):
            number = float(text)
            if number in (float("inf"), float("-inf")) or text.lstrip("+-").isdigit():
                self.problem("yaml_number", event.start_mark, f"The number {text[:40]} is too large to be exact.")
                return 0.0
            return number
        return text

    def _mark(self, event: Any, offset: int) -> None:
        """Remember where a value stands; a key's own place wins for what it names, text keeps its offset."""
        where = self._here()
        if where in self.marks:
            known = self.marks[where]
            if offset:
                known[2] = event.start_mark.line + 1 + offset - known[0]
        else:
            self.marks[where] = [event.start_mark.line + 1, event.start_mark.column + 1, offset]

    def _add(self, value: Value, event: Any) -> None:
        if event.__class__.__name__ == "ScalarEvent" and event.anchor:
            self.anchors[event.anchor] = value
        self._place(value, event)

    def _place(self, value: Value, event: Any) -> None:
        self.values += value.values if event.__class__.__name__ == "AliasEvent" else 1
        self.text += value.text if event.__class__.__name__ in ("AliasEvent", "ScalarEvent") else 0
        if self.values > MAX_VALUES or self.text > MAX_TEXT:
            self.fatal("yaml_too_large", event.start_mark, "The file grows too large when its aliases are expanded.")
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        frame.values += value.values
        frame.text += value.text
        if frame.mapping:
            if frame.key not in frame.data:
                frame.data[frame.key] = value.data
            frame.key = None
        else:
            frame.data.append(value.data)

    def _here(self) -> str:
        """Give the pointer of the value that comes next."""
        if not self.stack:
            return ""
        frame = self.stack[-1]
        if not frame.mapping:
            return f"{frame.path}/{len(frame.data)}"
        return frame.path if frame.key is None else frame.path + _step(frame.key)


def _step(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")


_EVENTS = {
    "ScalarEvent": Reader.scalar,
    "AliasEvent": Reader.alias,
    "SequenceStartEvent": lambda reader, event: reader.start(event, mapping=False),
    "MappingStartEvent": lambda reader, event: reader.start(event, mapping=True),
    "SequenceEndEvent": Reader.end,
    "MappingEndEvent": Reader.end,
}


def read(text: str) -> dict[str, Any]:
    reader = Reader()
    try:
        reader.read(text)
    except Stop:
        pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        reader.problems.append(["yaml_syntax", "", line, column, f"This is not YAML: {error.problem}.", _hint(error)])
    except yaml.YAMLError as error:
        reader.problems.append(["yaml_syntax", "", 1, 1, f"This is not YAML: {str(error).splitlines()[0]}.", ""])
    if not reader.problems and reader.root is None:
        reader.problems.append(["yaml_empty", "", 1, 1, "The file is empty.", ""])
    if reader.problems or reader.root is None:
        return {"problems": reader.problems}
    return {"data": reader.root.data, "marks": reader.marks}


def _hint(error: yaml.MarkedYAMLError) -> str:
    hint = next((hint for words, hint in _HINTS if words in str(error.problem)), "")
    begun = (
        f"This was found {error.context}, begun in line {error.context_mark.line + 1}." if error.context_mark else ""
    )
    return f"{hint} {begun}".strip() if error.context else hint


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps(read(sys.stdin.buffer.read().decode("utf-8"))))


if __name__ == "__main__":
    main()
