"""Turn a question's schema into the fields of a form, and the form back into an answer of the schema's types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FIELDS_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field; ``type`` is string, number, integer or boolean."""

    name: str
    label: str
    type: str = "string"
    help: str = ""
    choices: tuple[str, ...] = ()
    default: Any = ""
    required: bool = False


def fields_of(schema: Mapping[str, Any] | None) -> list[Field]:
    """Give a field per property; a question without a schema gets one for a text."""
    properties = (schema or {}).get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return [Field(name="text", label="Answer", required=True)]
    required = (schema or {}).get("required")
    wanted = required if isinstance(required, list) else []
    fields = [_field(str(name), each, str(name) in wanted) for name, each in list(properties.items())[:FIELDS_SHOWN]]
    return sorted(fields, key=lambda field: not field.required)  # frozen schemas have lost their order


def answer_of(schema: Mapping[str, Any] | None, form: Mapping[str, str]) -> dict[str, Any]:
    """Read the form's ``field.<name>`` values. A value that does not fit its type is left as text for the check."""
    found = {field.name: _value(field, form.get(f"field.{field.name}")) for field in fields_of(schema)}
    return {name: value for name, value in found.items() if value is not None}


def _field(name: str, schema: Any, required: bool) -> Field:
    known = schema if isinstance(schema, Mapping) else {}
    choices = known.get("enum")
    return Field(
        name=name,
        label=str(known.get("title") or name)[:200],
        type=str(known.get("type") or "string"),
        help=str(known.get("description") or "")[:1000],
        choices=tuple(str(each) for each in choices[:200]) if isinstance(choices, list) else (),
        default=known.get("default", ""),
        required=required,
    )


def _value(field: Field, text: str | None) -> Any:
    if field.type == "boolean":
        return text == "true"
    if text is None or (text == "" and not field.required):
        return None
    try:
        return {"integer": int, "number": float}.get(field.type, str)(text)
    except ValueError:
        return text
