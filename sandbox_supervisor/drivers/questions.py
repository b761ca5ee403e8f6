"""Turn an agent's permission requests and elicitations into requests to a person, and the answers back."""

import difflib
from dataclasses import dataclass
from typing import Any

from sandbox_supervisor.drivers.updates import TITLE, content_text, cut, tool
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Permissions
from sandbox_supervisor.protocol.states import RequestKind

OPTIONS = 20
BODY = 16 * 1024
SCHEMA_LIMIT = 32 * 1024  # bytes of JSON
_KINDS = ("allow_once", "allow_always", "reject_once", "reject_always")
CANCELLED = {"outcome": {"outcome": "cancelled"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a person is shown. ``property`` names the one field that ``options`` choose for."""

    kind: RequestKind
    title: str
    body: str = ""
    schema: dict[str, Any] | None = None
    options: tuple[dict[str, str], ...] = ()
    property: str = ""

    def asked(self, request_id: str) -> dict[str, Any]:
        """Give the data of ASK. The fingerprint covers all that a person decides on."""
        shown = {
            "kind": self.kind, "title": self.title, "body": self.body, "schema": self.schema,
            "options": list(self.options),
        }  # fmt: skip
        return {"request_id": request_id, **shown, "fingerprint": codec.digest(shown)}


# --- permissions -----------------------------------------------------------------------------------------------------


def permission(params: dict[str, Any], root: str = "") -> Question:
    """Read ``session/request_permission``; the tool call need not have been announced. What is decided on is shown as
    the agent sent it; only title and places are told as seen from ``root``."""
    call = params.get("toolCall")
    patch = tool(call, root) if isinstance(call, dict) else {}
    parts = patch.get("content", [])
    texts = [_changes(part) if part["type"] == "diff" else part["text"] for part in parts]
    shown = any(part["type"] == "diff" for part in parts)  # the input of an edit is the same once more
    if isinstance(call, dict) and isinstance(call.get("rawInput"), dict) and not shown:
        texts.append(_read_aloud(call["rawInput"]))
    offered = params.get("options")
    options = [option for option in map(_option, offered[:OPTIONS] if isinstance(offered, list) else []) if option]
    options.sort(key=lambda option: _KINDS.index(option["kind"]) if option["kind"] else len(_KINDS))  # once comes first
    title = patch.get("title") or patch.get("kind") or "The agent asks for permission"
    body = cut("\n\n".join(texts), BODY)
    return Question(kind=RequestKind.PERMISSION, title=title, body=body, options=tuple(options))


def _changes(edit: dict[str, Any]) -> str:
    """Give an edit as the lines that go and those that come."""
    old, new = (edit[name].splitlines() for name in ("old", "new"))
    lines = difflib.unified_diff(old, new, lineterm="", n=max(len(old), len(new)))
    return "\n".join([edit["path"], *list(lines)[3:]])


def _read_aloud(values: dict[str, Any]) -> str:
    """Give an input field by field, texts as they are: JSON would hide a command's or a file's lines."""
    return "\n".join(f"{name}: {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return codec.canonical(value).decode()
    return f"\n{value}" if "\n" in value else value


def _option(option: Any) -> dict[str, str] | None:
    if not isinstance(option, dict) or not isinstance(option.get("optionId"), str):
        return None
    kind = option.get("kind")
    return {
        "id": option["optionId"][:200],
        "name": cut(option.get("name"), 200) or option["optionId"][:200],
        "kind": kind if kind in _KINDS else "",
    }


def by_policy(question: Question, policy: str) -> dict[str, Any] | None:
    """Give the answer that the flow's permission policy fixes; None if a person is to decide."""
    if policy == Permissions.ASK:
        return None
    wanted = ("allow_once", "allow_always") if policy == Permissions.ALLOW else ("reject_once", "reject_always")
    chosen = _first(question, wanted)
    return {"option": chosen} if chosen is not None else {"cancelled": True}


def _first(question: Question, kinds: tuple[str, ...]) -> str | None:
    for kind in kinds:
        for option in question.options:
            if option["kind"] == kind:
                return option["id"]
    return None


def permission_outcome(question: Question, answer: dict[str, Any]) -> dict[str, Any]:
    """Give ACP's outcome. A declined request is a rejection where the agent offers one."""
    chosen = answer.get("option")
    if answer.get("declined"):
        chosen = _first(question, ("reject_once", "reject_always"))
    if chosen in [option["id"] for option in question.options]:
        return {"outcome": {"outcome": "selected", "optionId": chosen}}
    return CANCELLED


def allows(question: Question, outcome: dict[str, Any]) -> bool:
    """Say whether ACP's outcome lets the tool call go on."""
    chosen = outcome["outcome"].get("optionId")
    return any(option["id"] == chosen and not option["kind"].startswith("reject") for option in question.options)


# --- elicitations ----------------------------------------------------------------------------------------------------


def elicitation(params: dict[str, Any]) -> Question | None:
    """Read ``elicitation/create`` of mode ``form``; None for what cannot be shown."""
    schema = params.get("requestedSchema")
    if params.get("mode", "form") != "form" or not isinstance(schema, dict):
        return None
    if len(codec.encode(schema)) > SCHEMA_LIMIT:
        return None
    message = params.get("message")
    first, _, rest = (message if isinstance(message, str) else content_text(message)).partition("\n")
    name, options = _choice(schema)
    title = cut(first, TITLE) or "The agent asks"
    return Question(
        kind=RequestKind.QUESTION, title=title, body=cut(rest.strip(), BODY), schema=schema, options=options,
        property=name,
    )  # fmt: skip


def _choice(schema: dict[str, Any]) -> tuple[str, tuple[dict[str, str], ...]]:
    """Give the options of a form that is one choice: such a one can be answered with a button."""
    fields = schema.get("properties")
    if not isinstance(fields, dict) or len(fields) != 1:
        return "", ()
    ((name, field),) = fields.items()
    values = field.get("enum") if isinstance(field, dict) else None
    if not isinstance(values, list) or not 0 < len(values) <= OPTIONS or not all(isinstance(v, str) for v in values):
        return "", ()
    return str(name), tuple({"id": value, "name": cut(value, 200), "kind": ""} for value in values)


def elicitation_outcome(question: Question, answer: dict[str, Any]) -> dict[str, Any]:
    """Give ACP's answer: accept with content, decline or cancel."""
    if answer.get("declined"):
        return {"action": "decline"}
    if isinstance(answer.get("content"), dict):
        return {"action": "accept", "content": answer["content"]}
    if question.property and isinstance(answer.get("option"), str):
        return {"action": "accept", "content": {question.property: answer["option"]}}
    return {"action": "cancel"}
