"""Read bodies and query parameters into dataclasses: every problem at once, each with its place and a suggestion."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from enum import EnumType
from itertools import islice
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from workspaces_app.errors import Refused

T = TypeVar("T")

UNKNOWN_LIMIT = 50  # unknown members that are named; whoever sends more learns nothing from the rest


class InvalidInput(Refused):
    """The question itself is malformed; ``facts["errors"]`` lists every place."""

    default_code = "invalid_input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One thing that is wrong: ``pointer`` (JSON Pointer) in a body, or ``parameter`` of the query."""

    code: str
    detail: str
    pointer: str | None = None
    parameter: str | None = None

    def to_json(self) -> dict[str, str]:
        place = {"pointer": self.pointer} if self.parameter is None else {"parameter": self.parameter}
        return {
            **{name: value for name, value in place.items() if value is not None},
            "code": self.code,
            "detail": self.detail,
        }


def read_body(data: Any, into: type[T]) -> T:
    """Read a JSON value into the dataclass ``into``. Raises InvalidInput for unknown, missing and wrong members."""
    if not isinstance(data, Mapping):
        raise _invalid([Wrong(code="not_an_object", detail="The body must be a JSON object.", pointer="")])
    values, problems = _read(data, into, strict=True)
    if problems:
        raise _invalid([Wrong(code=code, detail=detail, pointer=pointer) for pointer, code, detail in problems])
    return into(**values)


def read_query(parameters: Mapping[str, list[str]], into: type[T]) -> T:
    """Read query parameters, each given once at most, into the dataclass ``into``. Raises InvalidInput."""
    twice = [name for name, given in parameters.items() if len(given) > 1]
    flat = {name: given[0] for name, given in parameters.items() if given}
    values, problems = _read(flat, into, strict=False)
    wrong = [Wrong(code=code, detail=detail, parameter=pointer[1:]) for pointer, code, detail in problems]
    wrong += [Wrong(code="given_twice", detail="Give this parameter once.", parameter=name) for name in twice]
    if wrong:
        raise _invalid(wrong)
    return into(**values)


def _read(
    data: Mapping[str, Any], into: type[Any], *, strict: bool
) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    """Give the values that could be read, and (pointer, code, detail) of what could not."""
    hints = get_type_hints(into, include_extras=True)
    known = {field.name: field for field in fields(into)}
    unknown = islice((name for name in data if name not in known), UNKNOWN_LIMIT)
    problems = [(f"/{_escape(name)}", "unknown", _unknown(name[:100], known)) for name in unknown]
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name in data:
            try:
                values[name] = msgspec.convert(data[name], hints[name], strict=strict)
            except msgspec.ValidationError as error:
                problems.append(_wrong(name, str(error), hints[name]))
        elif field.default is MISSING and field.default_factory is MISSING:
            problems.append((f"/{name}", "missing", "This member is required."))
    return values, problems


def _wrong(name: str, said: str, hint: Any) -> tuple[str, str, str]:
    """Take msgspec's sentence apart: ``Expected … - at `$.a[0]```."""
    detail, _, place = said.partition(" - at `$")
    inner = place.rstrip("`").replace("[", "/").replace("]", "").replace(".", "/")
    words = ", ".join(_words_of(hint)) if detail.startswith("Invalid enum value") else ""
    return f"/{name}{inner}", "invalid", f"{detail}; allowed: {words}." if words else f"{detail}."


def _words_of(hint: Any) -> Iterator[str]:
    """Give the words that the enumerations and literals in a type allow."""
    if isinstance(hint, EnumType):
        yield from map(str, hint.__members__.values())
    elif isinstance(hint, str):
        yield hint
    for inner in get_args(hint):
        yield from _words_of(inner)


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        return f"There is no such member; did you mean {near[0]!r}?"
    return f"There is no such member; known: {', '.join(known) or 'none'}."


def _escape(name: str) -> str:
    return name[:100].replace("~", "~0").replace("/", "~1")


def _invalid(wrong: list[Wrong]) -> InvalidInput:
    return InvalidInput(
        "The request has members that cannot be used." if len(wrong) > 1 else wrong[0].detail,
        errors=[one.to_json() for one in wrong],
    )
