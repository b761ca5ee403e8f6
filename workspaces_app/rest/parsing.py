"""Read JSON bodies strictly: what two readers could understand differently, or no column can hold, is no JSON here."""

import json
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import JSONParser

from sandbox_supervisor.protocol import codec


class StrictJSONParser(JSONParser):
    """``application/json`` in UTF-8, whatever ``charset`` says.

    The framework bounds the body of this base class only.
    """

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            return read_json(stream.read())
        except codec.Malformed as error:
            raise codec.Malformed(f"The body is no strict JSON: {error}.") from None


def read_json(data: bytes) -> Any:
    """Give the value of a JSON text.

    Raises Malformed, also for lone surrogates, numbers out of range, a name given twice in one object, and what is
    nested more than ``codec.DEEPEST`` times.
    """
    value = codec.decode(data, Any)
    if codec.is_deep(value):
        raise codec.Malformed(f"JSON is nested more than {codec.DEEPEST} deep")
    return json.loads(data, object_pairs_hook=_each_name_once) if b"{" in data else value


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise codec.Malformed(f"JSON has the name {name[:100]!r} twice in one object")
        found[name] = value
    return found
