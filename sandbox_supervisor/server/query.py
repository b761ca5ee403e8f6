"""Read query parameters strictly: unknown, repeated or out-of-range ones are refused."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from starlette.requests import Request

from sandbox_supervisor.server.problems import Problem

T = TypeVar("T")
LONGEST = 4096  # characters of one value


class Query:
    def __init__(self, request: Request, *, allowed: Iterable[str]) -> None:
        self._values: dict[str, list[str]] = {}
        known = set(allowed)
        for name, value in request.query_params.multi_items():
            if name not in known:
                raise Problem(400, "unknown_parameter", f"parameters here: {', '.join(sorted(known)) or 'none'}")
            if len(value) > LONGEST or "\0" in value:
                raise _bad(name, f"at most {LONGEST} characters, none of them NUL")
            self._values.setdefault(name, []).append(value)

    def all(self, name: str) -> frozenset[str]:
        return frozenset(self._values.get(name, ()))

    def one(self, name: str, default: str = "") -> str:
        values = self._values.get(name, [default])
        if len(values) > 1:
            raise _bad(name, "only once")
        return values[0]

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        return self._number(name, default, int, least, most)

    def seconds(self, name: str, default: float, *, most: float) -> float:
        return self._number(name, default, float, 0.0, most)

    def _number(self, name: str, default: T, read: Callable[[str], T], least: T, most: T) -> T:
        text = self.one(name)
        if not text:
            return default
        try:
            value = read(text)
        except ValueError:
            raise _bad(name, "a number") from None
        if not least <= value <= most:  # type: ignore[operator]  # NaN is not between anything
            raise _bad(name, f"between {least} and {most}")
        return value


def _bad(name: str, wanted: str) -> Problem:
    return Problem(400, "invalid_parameter", f"{name}: {wanted}", parameter=name)
