"""Turn the text of a flow file into plain data with places, in a child process with limits."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry_app.flows.problems import Finding, Problem, pointer

MAX_BYTES = 256 * 1024
PATIENCE = 20.0  # seconds by the wall; the child's own limit is 2 s of processor time
_READER = Path(__file__).with_name("reader.py")


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data, and for each JSON Pointer the line, the column and how far below its text begins."""

    data: Any
    marks: Mapping[str, tuple[int, int, int]]

    def problem(self, finding: Finding) -> Problem:
        """Give a finding its place: that of its path, or of the nearest thing around it that stands in the file."""
        path = finding.path
        mark = self.marks.get(pointer(path))
        while mark is None and path:
            path = path[:-1]
            mark = self.marks.get(pointer(path))
        line, column, offset = mark or (1, 1, 0)
        if finding.lines and offset:
            line, column = line + offset + finding.lines - 1, 1
        return Problem(
            code=finding.code,
            pointer=pointer(finding.path),
            line=line,
            column=column,
            message=finding.message,
            hint=finding.hint,
        )


def read_document(source: str | bytes) -> Document | list[Problem]:
    """Read YAML 1.2 (or JSON). Never raises for what the text holds: every refusal is a problem with its place."""
    raw = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    if len(raw) > MAX_BYTES:
        return [
            _whole("file_too_large", f"A flow file has at most {MAX_BYTES // 1024} KiB; this one has {len(raw)} bytes.")
        ]
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return [_whole("encoding", f"The file is not UTF-8: byte {error.start} is {raw[error.start]:#04x}.", line=line)]
    return _in_child(text)


def _in_child(text: str) -> Document | list[Problem]:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-B", str(_READER)],
            input=text.encode(),
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
        )
        answer = json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        answer = None
    if answer is None:
        return [_whole("too_expensive", "Reading the file takes more than 2 s or 256 MiB.")]
    if "problems" in answer:
        return [
            Problem(code=code, pointer=where, line=line, column=column, message=message, hint=hint)
            for code, where, line, column, message, hint in answer["problems"]
        ]
    return Document(answer["data"], {where: (mark[0], mark[1], mark[2]) for where, mark in answer["marks"].items()})


def _whole(code: str, message: str, *, line: int = 1) -> Problem:
    return Problem(code=code, pointer="", line=line, column=1, message=message)
