"""What a member asks for, checked by itself: texts, names and inputs."""

from dataclasses import dataclass, field
from typing import Any

from registry_app.inputs import resolve_inputs
from sandbox_supervisor.protocol.flow import Flow
from tasks_app.errors import Refused

TITLE_LIMIT = 200  # characters
BRIEF_LIMIT = 64 * 1024  # bytes


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
    values, problems = resolve_inputs(flow, given)
    if problems:
        errors = [
            {
                "pointer": f"/inputs{problem.pointer}",
                "code": problem.code,
                "detail": f"{problem.message} {problem.hint}".strip(),
            }
            for problem in problems
        ]
        raise Refused("The inputs do not fit the flow.", code="inputs_invalid", errors=errors)
    return values
