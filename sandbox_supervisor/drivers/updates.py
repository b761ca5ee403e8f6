"""Turn what an agent tells about its work (``session/update``) into bounded session events.

Every text is cut or split, every list shortened, every word checked against the known ones: what leaves here may be
stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.events import EventKind

PIECE = 16 * 1024  # characters of one message event
FINAL_LIMIT = 256 * 1024  # characters kept of the final message, its end
TOOL_TEXT = 8 * 1024
EDIT_CONTEXT = 3  # lines
TITLE = 500
ITEMS = 20
PLAN_ENTRIES = 100
CALLS = 200  # tool calls that are remembered: one is asked about soon after it was told
EVENT_LIMIT = 128 * 1024  # bytes of one event as JSON
# Tuples, because an agent may send what cannot be hashed where a word belongs.
_TOOL_KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
_TOOL_STATUS = ("pending", "in_progress", "completed", "failed")
_PLAN_STATUS = ("pending", "in_progress", "completed")
_OUTPUTS = ("formatted_output", "aggregated_output", "output", "stdout")  # in a call's raw output, the best first
_PRIORITIES = ("high", "medium", "low")

Told = tuple[EventKind, dict[str, Any]]


def cut(value: Any, limit: int) -> str:
    """Give text of at most ``limit`` characters, its middle left out where it is longer."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    if len(text) <= limit:
        return text
    half = (limit - 20) // 2
    return f"{text[:half]} … {len(text) - 2 * half} left out … {text[-half:]}"


def fitted(data: dict[str, Any]) -> dict[str, Any]:
    """Give an event's data with its texts cut as far as it takes to stay below ``EVENT_LIMIT``."""
    room = PIECE * 2
    while len(codec.encode(data)) > EVENT_LIMIT:
        room //= 2
        data = _shortened(data, room)
    return data


def _shortened(value: Any, room: int) -> Any:
    match value:
        case str():
            return cut(value, room)
        case dict():
            return {name: _shortened(item, room) for name, item in value.items()}
        case list():
            return [_shortened(item, room) for item in value]
    return value


@dataclass(slots=True)
class Transcript:
    """What one session has said so far. ``final`` is the last message, from its beginning as far as it is kept.

    Paths below ``root``, the session's working directory, are told as seen from there.
    """

    root: str = ""
    said: bool = False
    worked: bool = False  # a tool was called
    final: str = ""
    _prompt: str = ""
    _count: int = 0
    _open: tuple[str, str] | None = None  # (role, id) of the message that is being written
    _calls: dict[str, bool] = field(default_factory=dict)  # tool calls told of, and whether an edit was shown

    def turn(self, prompt: str = "") -> None:
        """Begin a new turn: the next message is a new one. An agent that repeats the prompt is not heard."""
        self._open, self.final, self._prompt = None, "", prompt.strip()

    def take(self, update: dict[str, Any]) -> list[Told]:
        """Give the events of one update; none for what the console does not show."""
        kind = update.get("sessionUpdate")
        match kind:
            case "agent_message_chunk" | "user_message_chunk" | "agent_thought_chunk":
                return list(self._chunk(kind, update))
            case "tool_call" | "tool_call_update":
                return [(EventKind.SESSION_TOOL, self._tool(update))]
            case "plan":
                self._open = None
                return [(EventKind.SESSION_PLAN, {"entries": _plan(update.get("entries"))})]
        return []

    def announce(self, call: Any) -> list[Told]:
        """Give the event of a tool call that only its permission request tells of: some agents send what it is nowhere
        else, and what became of it under the same id. None for one that is known. Words of the request's are no
        content of the call."""
        if not isinstance(call, dict) or cut(call.get("toolCallId"), 200) in {"", *self._calls}:
            return []
        patch = {"status": "pending"} | self._tool(call)
        patch["content"] = [part for part in patch.get("content", []) if _edits(part)]
        return [(EventKind.SESSION_TOOL, patch)]

    def _tool(self, update: dict[str, Any]) -> dict[str, Any]:
        self._open, self.worked = None, True
        patch = tool(update, self.root)
        edit = self._calls.pop(patch["id"], False) or any(map(_edits, patch.get("content", [])))
        self._calls[patch["id"]] = edit
        if len(self._calls) > CALLS:
            del self._calls[next(iter(self._calls))]
        if "content" not in patch and not edit and (output := _raw_output(update.get("rawOutput"))) is not None:
            patch["content"] = [{"type": "text", "text": cut(output, TOOL_TEXT)}] if output else []
        return patch

    def _chunk(self, kind: str, update: dict[str, Any]) -> Iterator[Told]:
        text = content_text(update.get("content"))
        if not text or (kind == "user_message_chunk" and text.strip() == self._prompt):
            return
        message = self._message(kind, update.get("messageId"))
        if kind == "agent_message_chunk":
            self.said = self.said or bool(text.strip())
            self.final = (self.final + text)[-FINAL_LIMIT:]
        for at in range(0, len(text), PIECE):
            data: dict[str, Any] = {"id": message, "text": text[at : at + PIECE]}
            if kind == "agent_thought_chunk":
                yield EventKind.SESSION_THOUGHT, data
            else:
                yield EventKind.SESSION_MESSAGE, data | {"role": kind.partition("_")[0]}

    def _message(self, kind: str, given: Any) -> str:
        """Give the message's id: the agent's, or one of ours until something else comes between."""
        named = f"a{given[:100]}" if isinstance(given, str) and given else ""
        if self._open is None or self._open[0] != kind or (named and self._open[1] != named):
            self._count += 1
            self._open = (kind, named or f"m{self._count}")
            if kind == "agent_message_chunk":
                self.final = ""
        return self._open[1]


def content_text(content: Any) -> str:
    """Give the text of a content block; other blocks are named."""
    if not isinstance(content, dict):
        return ""
    match content.get("type"):
        case "text":
            return content["text"] if isinstance(content.get("text"), str) else ""
        case "resource_link":
            return f"[{cut(content.get('uri'), TITLE)}]"
        case "resource":
            inner = content.get("resource")
            return f"[{cut(inner.get('uri'), TITLE)}]" if isinstance(inner, dict) else "[resource]"
        case str(kind):
            return f"[{kind[:40]}]"
    return ""


def tool(update: dict[str, Any], root: str = "") -> dict[str, Any]:
    """Give the patch of a tool call: only what the agent has sent, bounded, paths as seen from ``root``."""
    patch: dict[str, Any] = {"id": cut(update.get("toolCallId"), 200)}
    if isinstance(update.get("title"), str):
        patch["title"] = cut(_seen_from(root, update["title"]), TITLE)
    if isinstance(update.get("kind"), str):
        patch["kind"] = update["kind"] if update["kind"] in _TOOL_KINDS else "other"
    if update.get("status") in _TOOL_STATUS:
        patch["status"] = update["status"]
    if isinstance(update.get("content"), list):
        patch["content"] = [item for each in update["content"][:ITEMS] if (item := _tool_content(each, root))]
    if isinstance(update.get("locations"), list):
        patch["locations"] = [item for each in update["locations"][:ITEMS] if (item := _location(each, root))]
    return patch


def _tool_content(item: Any, root: str) -> dict[str, Any] | None:
    if not isinstance(item, dict):
        return None
    match item.get("type"):
        case "content":
            return {"type": "text", "text": cut(content_text(item.get("content")), TOOL_TEXT)}
        case "diff":
            path = cut(_seen_from(root, item.get("path")), TITLE)
            return {"type": "diff", "path": path} | _edit(item.get("oldText"), item.get("newText"))
    return None


def _edits(part: dict[str, Any]) -> bool:
    return bool(part["type"] == "diff")


def _raw_output(raw: Any) -> str | None:
    """Give the text in ``rawOutput``, the only place where some agents put what a command printed; None without one."""
    if isinstance(raw, str):
        return raw
    fields = raw if isinstance(raw, dict) else {}
    texts: list[str] = [fields[name] for name in _OUTPUTS if isinstance(fields.get(name), str)]
    if not texts:
        return None
    code = fields.get("exit_code")
    return texts[0] + (f"\n[exit code {code}]" if type(code) is int and code else "")


def _edit(before: Any, after: Any) -> dict[str, Any]:
    """Give the lines that differ and ``EDIT_CONTEXT`` ones around them, with the number of their first line.

    An agent sends both files whole: cut as they are, two long files could look alike.
    """
    old, new = (text.split("\n") if isinstance(text, str) else [] for text in (before, after))
    most = min(len(old), len(new))
    head = next((at for at in range(most) if old[at] != new[at]), most)
    tail = next((at for at in range(most - head) if old[-1 - at] != new[-1 - at]), most - head)
    first, last = max(0, head - EDIT_CONTEXT), max(0, tail - EDIT_CONTEXT)
    shown = {name: "\n".join(lines[first : len(lines) - last]) for name, lines in (("old", old), ("new", new))}
    return {name: cut(text, TOOL_TEXT) for name, text in shown.items()} | {"line": first + 1}


def _location(item: Any, root: str) -> dict[str, Any] | None:
    if not isinstance(item, dict) or not isinstance(item.get("path"), str):
        return None
    line = item.get("line")
    path = cut(_seen_from(root, item["path"]), TITLE)
    return {"path": path} | ({"line": line} if type(line) is int and 0 <= line < 2**31 else {})


def _seen_from(root: str, text: Any) -> Any:
    return text.replace(f"{root}/", "") if root and isinstance(text, str) else text


def _plan(entries: Any) -> list[dict[str, str]]:
    found = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [
        {
            "content": cut(entry.get("content"), TITLE),
            "status": entry["status"] if entry.get("status") in _PLAN_STATUS else "pending",
            "priority": entry["priority"] if entry.get("priority") in _PRIORITIES else "medium",
        }
        for entry in found[:PLAN_ENTRIES]
    ]
