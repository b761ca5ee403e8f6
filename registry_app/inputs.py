"""Check what a person gives for the inputs of a flow, and fill in what is left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator

from registry_app.flows.problems import guess, pointer
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Flow

MAX_BYTES = 64 * 1024
_WORDS = {
    "type": "must be of type {}",
    "enum": "must be one of {}",
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
}


@dataclass(frozen=True, slots=True)
class InputProblem:
    """``pointer`` is a JSON Pointer into the inputs; the message never repeats the value."""

    code: str
    pointer: str
    message: str
    hint: str = ""


def resolve_inputs(flow: Flow, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[InputProblem]]:
    """Give the inputs to freeze, and every problem; with a problem they are not to be used."""
    if len(codec.encode(given)) > MAX_BYTES:
        return {}, [InputProblem("inputs_too_large", "", f"The inputs have at most {MAX_BYTES // 1024} KiB in all.")]
    problems = [
        InputProblem(
            "unknown_input", pointer((name,)), f"The flow has no input {name[:80]!r}.", guess(name, flow.inputs)
        )
        for name in given
        if name not in flow.inputs
    ]
    values: dict[str, Any] = {}
    for name, schema in flow.inputs.items():
        if name in given:
            values[name] = given[name]
            problems += _check(name, schema, given[name])
        elif "default" in schema:
            values[name] = schema["default"]
        else:
            problems.append(
                InputProblem("missing_input", pointer((name,)), f"The input {name!r} has no default; give it.")
            )
    return values, problems


def _check(name: str, schema: Mapping[str, Any], value: Any) -> list[InputProblem]:
    found = []
    for error in Draft202012Validator(schema).iter_errors(value):
        words = _WORDS.get(str(error.validator), "does not fit").format(error.validator_value)
        found.append(InputProblem("wrong_input", pointer((name,)), f"The input {name!r} {words}."))
    return found
