"""Turn what an agent tells about its work (``session/update``) into bounded session events.

Every text is cut or split, every list shortened, every word checked against the known ones: what leaves here may be
stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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
EVENT_LIMIT = 128 * 1024  # bytes of one event as JSON
# Tuples, because an agent may send what cannot be hashed where a word belongs.
_TOOL_KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
_TOOL_STATUS = ("pending", "in_progress", "completed", "failed")
_PLAN_STATUS = ("pending", "in_progress", "completed")
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
    """What one session has said so far. ``final`` is the last message, from its beginning as far as it is kept."""

    said: bool = False
    worked: bool = False  # a tool was called
    final: str = ""
    _count: int = 0
    _open: tuple[str, str] | None = None  # (role, id) of the message that is being written

    def turn(self) -> None:
        """Begin a new turn: the next message is a new one."""
        self._open, self.final = None, ""

    def take(self, update: dict[str, Any]) -> list[Told]:
        """Give the events of one update; none for what the console does not show."""
        kind = update.get("sessionUpdate")
        match kind:
            case "agent_message_chunk" | "user_message_chunk" | "agent_thought_chunk":
                return list(self._chunk(kind, update))
            case "tool_call" | "tool_call_update":
                self._open, self.worked = None, True
                return [(EventKind.SESSION_TOOL, tool(update))]
            case "plan":
                self._open = None
                return [(EventKind.SESSION_PLAN, {"entries": _plan(update.get("entries"))})]
        return []

    def _chunk(self, kind: str, update: dict[str, Any]) -> Iterator[Told]:
        text = content_text(update.get("content"))
        if not text:
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


def tool(update: dict[str, Any]) -> dict[str, Any]:
    """Give the patch of a tool call: only what the agent has sent, bounded."""
    patch: dict[str, Any] = {"id": cut(update.get("toolCallId"), 200)}
    if isinstance(update.get("title"), str):
        patch["title"] = cut(update["title"], TITLE)
    if isinstance(update.get("kind"), str):
        patch["kind"] = update["kind"] if update["kind"] in _TOOL_KINDS else "other"
    if update.get("status") in _TOOL_STATUS:
        patch["status"] = update["status"]
    if isinstance(update.get("content"), list):
        patch["content"] = [item for item in map(_tool_content, update["content"][:ITEMS]) if item]
    if isinstance(update.get("locations"), list):
        patch["locations"] = [item for item in map(_location, update["locations"][:ITEMS]) if item]
    return patch


def _tool_content(item: Any) -> dict[str, Any] | None:
    if not isinstance(item, dict):
        return None
    match item.get("type"):
        case "content":
            return {"type": "text", "text": cut(content_text(item.get("content")), TOOL_TEXT)}
        case "diff":
            return {"type": "diff", "path": cut(item.get("path"), TITLE)} | _edit(
                item.get("oldText"), item.get("newText")
            )
    return None


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


def _location(item: Any) -> dict[str, Any] | None:
    if not isinstance(item, dict) or not isinstance(item.get("path"), str):
        return None
    line = item.get("line")
    return {"path": cut(item["path"], TITLE)} | ({"line": line} if type(line) is int and 0 <= line < 2**31 else {})


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
