"""What a member asks for, checked by itself: texts, names and inputs."""

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from jsonschema import Draft202012Validator

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Flow
from tasks_app.errors import Refused

TITLE_LIMIT = 200  # characters
BRIEF_LIMIT = 64 * 1024  # bytes
INPUTS_LIMIT = 64 * 1024  # bytes of JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """``base``: branch, tag or full commit id, empty for the default branch. An empty ``task_branch`` is made up."""

    workspace_id: str
    repository_id: str
    flow_version_id: str
    title: str = ""
    brief: str = ""
    base: str = ""
    task_branch: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)


def check_texts(request: TaskRequest) -> str:
    """Give the title to use. Raises Refused for texts that are too long or hold control characters."""
    title = " ".join((request.title or _first_line(request.brief)).split())
    if not title:
        raise Refused("Give the task a title or a brief.", code="title_missing", pointer="/title")
    if len(title) > TITLE_LIMIT:
        if request.title:
            raise Refused(f"A title has at most {TITLE_LIMIT} characters.", code="title_too_long", pointer="/title")
        title = title[: TITLE_LIMIT - 1] + "…"
    if len(request.brief.encode("utf-8", "replace")) > BRIEF_LIMIT:
        raise Refused(f"A brief has at most {BRIEF_LIMIT} bytes.", code="brief_too_long", pointer="/brief")
    for name, text in (("title", title), ("brief", request.brief)):
        if not _is_plain(text):
            raise Refused(f"The {name} holds characters that are no text.", code="text_malformed", pointer=f"/{name}")
    return title


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _is_plain(text: str) -> bool:
    """No NUL, no lone surrogate: PostgreSQL and UTF-8 refuse them."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def complete_inputs(flow: Flow, given: dict[str, Any]) -> dict[str, Any]:
    """Give the inputs with the flow's defaults. Raises Refused, naming everything that is wrong at once."""
    if len(codec.canonical(given)) > INPUTS_LIMIT:
        raise Refused(f"Inputs have at most {INPUTS_LIMIT} bytes of JSON.", code="inputs_too_big", pointer="/inputs")
    wrong = [_unknown(name, flow) for name in given if name not in flow.inputs]
    complete: dict[str, Any] = {}
    for name, schema in flow.inputs.items():
        if name in given:
            wrong += _complaints(name, schema, given[name])
            complete[name] = given[name]
        elif "default" in schema:
            complete[name] = schema["default"]
        else:
            wrong.append({"pointer": f"/inputs/{name}", "code": "input_missing", "detail": f"The flow needs {name}."})
    if wrong:
        raise Refused("The inputs do not fit the flow.", code="inputs_invalid", errors=wrong)
    return complete


def _unknown(name: str, flow: Flow) -> dict[str, str]:
    near = get_close_matches(name, flow.inputs, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return {"pointer": f"/inputs/{name}", "code": "input_unknown", "detail": f"The flow has no input {name}.{hint}"}


def _complaints(name: str, schema: dict[str, Any], value: Any) -> list[dict[str, str]]:
    """Say what is wrong without repeating the value."""
    fragment = {key: word for key, word in schema.items() if key != "default"}
    return [
        {
            "pointer": "/".join(["/inputs", name, *map(str, error.absolute_path)]),
            "code": "input_invalid",
            "detail": f"must satisfy {error.validator}: {error.validator_value}"[:300],
        }
        for error in Draft202012Validator(fragment).iter_errors(value)
    ]
