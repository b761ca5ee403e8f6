"""Find the result an agent declares, and check it against what the flow wants."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

RESULT_LIMIT = 64 * 1024  # bytes
TRIES = 1000
PROBLEMS = 5


def last_object(message: str) -> dict[str, Any] | None:
    """Give the last JSON object in a message: fenced or bare, not one inside another, none above ``RESULT_LIMIT``."""
    text = message[-RESULT_LIMIT:].encode("utf-8", "replace")[-RESULT_LIMIT:].decode("utf-8", "ignore")
    found = None
    for value in _objects(text):
        found = value
    return found


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    at, tries = text.find("{"), 0
    while at >= 0 and tries < TRIES:
        tries += 1
        end = at + 1
        with suppress(ValueError, RecursionError):
            value, end = decoder.raw_decode(text, at)
            if isinstance(value, dict) and value:
                yield value
        at = text.find("{", end)


def from_file(path: str) -> dict[str, Any] | None:
    """Give what the agent wrote to its result file, if that is a JSON object of sensible size."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.pread(fd, RESULT_LIMIT + 1, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
    if len(data) > RESULT_LIMIT:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    """Say what is wrong with a value; empty if nothing is. References never leave the schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        errors = Draft202012Validator(schema, registry=Registry()).iter_errors(value)
        return [f"{error.json_path}: {error.message[:300]}" for _, error in zip(range(PROBLEMS), errors, strict=False)]
    except (SchemaError, Unresolvable, RecursionError) as error:
        return [f"the schema cannot be used: {str(error)[:300]}"]


def repair_prompt(schema: dict[str, Any], found: list[str]) -> str:
    """Ask once more for the result, saying what was wrong."""
    wrong = "\n".join(f"- {problem}" for problem in found)
    wanted = json.dumps(schema, ensure_ascii=False)
    return (
        "Your answer did not end with the result that this step must give.\n"
        f"{wrong}\n\nEnd your answer with one JSON object that fits this JSON Schema, in a ```json block, and nothing "
        f"after it:\n{wanted}"
    )
