"""Compare a document with the flow schema and say what differs, in words of the file."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path as FilePath
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from registry_app.flows.problems import Finding, Path, brief, distinct, guess

SCHEMA_FILE = FilePath(__file__).parent.parent / "schemas" / "flow.v1.json"
KINDS = ("agent", "command", "approval", "merge", "delivery")
RESERVED_AT_ROOT = frozenset({"pools", "on", "limits", "timeout"})
RESERVED_IN_NODE = frozenset({"map", "pool", "services", "attempts", "choose", "limits", "on"})
RESERVED_IN_TIMEOUT = frozenset({"queue", "silence", "graph"})
_SECTIONS = ("nodes", "finally")
_ELSEWHERE = {  # what other systems call our keys
    **dict.fromkeys(("depends_on", "dependson", "depends", "dependencies", "after", "requires", "runafter"), "needs"),
    **dict.fromkeys(("id", "name", "slug"), "key"),
    **dict.fromkeys(("label", "display_name", "displayname"), "title"),
    **dict.fromkeys(("jobs", "steps", "tasks", "stages", "graph", "dag"), "nodes"),
    **dict.fromkeys(("if", "condition", "only_if"), "when"),
    **dict.fromkeys(("script", "cmd", "bash", "exec"), "run"),
    **dict.fromkeys(("environment", "variables"), "env"),
    **dict.fromkeys(("args", "arguments"), "argv"),
    **dict.fromkeys(("parameters", "params", "variables"), "inputs"),
    **dict.fromkeys(("artifacts", "outputs"), "artefacts"),
    **dict.fromkeys(("text", "message", "instructions"), "prompt"),
    **dict.fromkeys(("on_exit", "cleanup", "always"), "finally"),
    **dict.fromkeys(("retries", "max_retries"), "retry"),
    **dict.fromkeys(("timeout_minutes", "deadline"), "timeout"),
}
_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
} | {
    "boolean": "true or false",
    "null": "null",
}


@cache
def schema() -> dict[str, Any]:
    """Give the JSON Schema of flow files; the same object each time, not to be changed."""
    loaded: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return loaded


@cache
def _validator() -> Any:
    own = {"pattern": _whole_pattern, "uniqueItems": _all_different}
    return extend(Draft202012Validator, own)(schema())  # type: ignore[no-untyped-call]


def _whole_pattern(_: Any, pattern: str, text: Any, __: Any) -> Iterator[ValidationError]:
    """Take ``$`` as JSON Schema does: Python's own also stands before a newline at the end."""
    if isinstance(text, str) and not re.search(re.sub(r"\$\Z", r"\\Z", pattern), text):
        yield ValidationError("pattern")


def _all_different(_: Any, wanted: bool, items: Any, __: Any) -> Iterator[ValidationError]:
    """Compare by sorted spelling: jsonschema itself compares each with each when the types differ."""
    if wanted and isinstance(items, list) and len(set(map(_spelling, items))) < len(items):
        yield ValidationError("uniqueItems")


def _spelling(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def check_shape(data: Any, most: int) -> list[Finding]:
    """Name everything that the schema forbids, up to ``most``; a reserved key is ``not_supported_yet``."""
    findings = (finding for error in _validator().iter_errors(data) for finding in _explain(error))
    return list(islice(distinct(findings), most))


def _explain(error: Any) -> Iterator[Finding]:
    """Put one of jsonschema's ValidationErrors (whose members are typed as perhaps unset) into words."""
    path = tuple(error.absolute_path)
    explain = _EXPLANATIONS.get(str(error.validator))
    if explain is None:
        yield Finding("invalid", path, f"This is not allowed: {error.validator}.", _hint(error))
    else:
        yield from explain(error, path)


def _additional(error: Any, path: Path) -> Iterator[Finding]:
    known = error.schema.get("properties", {})
    for key in error.instance:
        if key in known:
            continue
        if key in _reserved(path):
            yield Finding("not_supported_yet", (*path, key), f"{key!r} is part of the format but not supported yet.")
        else:
            yield Finding(
                "unknown_key", (*path, key), f"There is no key {brief(key)} here.", _where_to(key, path, known)
            )


def _where_to(key: str, path: Path, known: Collection[str]) -> str:
    """Say where a key belongs that is right elsewhere, what others call by this name, or what was meant."""
    node = schema()["$defs"]["node"]["properties"]
    usual = _ELSEWHERE.get(key.lower().replace("-", "_"), key)
    in_node = len(path) == 2 and path[0] in _SECTIONS
    inside = [kind for kind in KINDS if in_node and usual in _members(kind)]
    if path == ("defaults",) and usual in _members("agent"):
        inside = ["agent"]
    if usual != key and usual in known:
        return f"Here this is called {usual!r}."
    if inside:
        return f"It stands inside {' or '.join(inside)}, for instance {inside[0]}: {{{usual}: …}}."
    if not path and key in node:
        return "This is a key of a node: indent it below its '- key: …'."
    if len(path) == 3 and path[0] in _SECTIONS and key in node:
        return f"It stands beside {path[-1]!r}, not inside: indent it like that."
    return guess(key, known)


def _members(kind: str) -> Mapping[str, Any]:
    definition = schema()["$defs"]["node"]["properties"][kind]
    if "$ref" in definition:
        definition = schema()["$defs"][definition["$ref"].rsplit("/", 1)[-1]]
    members: Mapping[str, Any] = definition["properties"]
    return members


def _reserved(path: Path) -> frozenset[str]:
    if not path:
        return RESERVED_AT_ROOT
    if len(path) == 2 and path[0] in ("nodes", "finally"):
        return RESERVED_IN_NODE
    return RESERVED_IN_TIMEOUT if path[-1] == "timeout" else frozenset()


def _required(error: Any, path: Path) -> Iterator[Finding]:
    missing = next(key for key in error.validator_value if f"{key!r} is a required" in error.message)
    yield Finding("missing_key", path, f"The key {missing!r} is missing here.")


def _type(error: Any, path: Path) -> Iterator[Finding]:
    wanted = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
    hint = _hint(error)
    if wanted == ["string"] and isinstance(error.instance, bool | int | float) and not hint:
        hint = f'Write it in quotes: "{json.dumps(error.instance)}".'
    words = " or ".join(_TYPES[kind] for kind in wanted)
    yield Finding("wrong_type", path, f"This must be {words}, not {_kind(error.instance)}.", hint)


def _enum(error: Any, path: Path) -> Iterator[Finding]:
    known = [str(value) for value in error.validator_value]
    if isinstance(error.instance, str):
        yield Finding(
            "wrong_value", path, f"{brief(error.instance)} is not possible here.", guess(error.instance, known)
        )
    else:
        yield Finding("wrong_value", path, f"This is not one of {', '.join(known)}.")


def _const(error: Any, path: Path) -> Iterator[Finding]:
    yield Finding("wrong_value", path, f"This must be {json.dumps(error.validator_value)}.")


def _pattern(error: Any, path: Path) -> Iterator[Finding]:
    if "propertyNames" in error.absolute_schema_path:
        path = (*path, str(error.instance))
    yield Finding("wrong_form", path, f"{brief(error.instance)} has not the right form.", _hint(error))


def _one_of(error: Any, path: Path) -> Iterator[Finding]:
    if not isinstance(error.instance, dict):
        return  # its type is a finding of its own
    alternatives = [key for branch in error.validator_value for key in branch["required"]]
    present = [key for key in alternatives if key in error.instance]
    found = f"here: {', '.join(present)}" if present else "here is none"
    code = "node_kind" if alternatives == list(KINDS) else "one_of"
    yield Finding(code, path, f"Exactly one of {', '.join(alternatives)} must stand here; {found}.")


def _any_of(error: Any, path: Path) -> Iterator[Finding]:
    """Explain the branch that was meant, if the kind of value tells which; else say what there is to choose from."""
    meant = [inner for inner in error.context or () if inner.validator not in ("type", "enum") or inner.path]
    explained = [finding for inner in meant for finding in _explain(inner)]
    if isinstance(error.instance, dict | list) and explained:
        yield from explained
        return
    choices = [value for inner in error.context or () if inner.validator == "enum" for value in inner.validator_value]
    hint = guess(error.instance, choices) if isinstance(error.instance, str) and choices else _hint(error)
    yield Finding("wrong_value", path, f"{brief(error.instance)} is not possible here.", hint)


def _bound(error: Any, path: Path) -> Iterator[Finding]:
    words = {
        "minimum": "at least {}",
        "maximum": "at most {}",
        "minLength": "at least {} characters long",
        "maxLength": "at most {} characters long",
        "minItems": "a list of at least {}",
        "maxItems": "a list of at most {}",
        "minProperties": "a mapping of at least {}",
        "maxProperties": "a mapping of at most {}",
    }[str(error.validator)]
    code = "too_many_nodes" if path in (("nodes",), ("finally",)) and error.validator == "maxItems" else "out_of_bounds"
    yield Finding(code, path, f"This must be {words.format(error.validator_value)}.")


def _unique(error: Any, path: Path) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, item in enumerate(error.instance):
        if _spelling(item) in seen:
            yield Finding("duplicate_item", (*path, index), f"{brief(item)} stands twice in this list.")
        seen.add(_spelling(item))


_EXPLANATIONS = {
    "additionalProperties": _additional,
    "required": _required,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "pattern": _pattern,
    "oneOf": _one_of,
    "anyOf": _any_of,
    "uniqueItems": _unique,
    **dict.fromkeys(
        ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        _bound,
    ),
}


def _hint(error: Any) -> str:
    text = error.schema.get("description", "") if isinstance(error.schema, dict) else ""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "text" if isinstance(value, str) else "a number"
