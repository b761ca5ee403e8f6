"""Collect what a session has used, wherever an agent says it."""

from typing import Any

_FIELDS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cachedReadTokens": "cached_input_tokens",
    "thoughtTokens": "thought_tokens",
    "totalTokens": "total_tokens",
}
_LARGEST = 1e15


class Usage:
    """Totals of a session. Agents differ: some report a turn with its answer, some each request of the model, in the
    ``_meta`` of a message; some tell how full the context is."""

    def __init__(self) -> None:
        self.totals: dict[str, float] = {}
        self._before: dict[str, float] = {}

    def turn(self) -> None:
        """Begin a turn: what it reports comes on top of what there is."""
        self._before = dict(self.totals)

    def answered(self, result: dict[str, Any]) -> bool:
        """Take a prompt's answer: the turn's ``usage``, or its ``_meta.quota``. True if anything changed."""
        before = dict(self.totals)
        usage = result.get("usage")
        turn = _tokens(usage) if isinstance(usage, dict) else _quota(result)
        for name, value in turn.items():
            self._raise(name, self._before.get(name, 0) + value)
        return self.totals != before

    def updated(self, update: dict[str, Any]) -> bool:
        """Take what a ``session/update`` says about usage. True if anything changed."""
        before = dict(self.totals)
        if update.get("sessionUpdate") == "usage_update":
            self._context(update)
        elif isinstance(meta := update.get("_meta"), dict) and isinstance(request := meta.get("usage"), dict):
            for name, value in _tokens(request).items():
                self._raise(name, self.totals.get(name, 0) + value)
        return self.totals != before

    def _context(self, update: dict[str, Any]) -> None:
        for theirs, ours in (("used", "context_used"), ("size", "context_size")):
            if (number := _number(update.get(theirs))) is not None:
                self.totals[ours] = number
        if isinstance(cost := update.get("cost"), dict):
            self._raise("cost", cost.get("amount"))

    def _raise(self, name: str, value: Any) -> None:
        if (number := _number(value)) is not None:
            self.totals[name] = max(self.totals.get(name, 0), number)


def _tokens(usage: dict[str, Any]) -> dict[str, float]:
    found = {ours: _number(usage.get(theirs)) for theirs, ours in _FIELDS.items()}
    return {name: number for name, number in found.items() if number is not None}


def _quota(result: dict[str, Any]) -> dict[str, float]:
    meta = result.get("_meta")
    quota = meta.get("quota") if isinstance(meta, dict) else None
    counts = quota.get("token_count") if isinstance(quota, dict) else None
    if not isinstance(counts, dict):
        return {}
    found = {name: _number(counts.get(name)) for name in ("input_tokens", "output_tokens")}
    return {name: number for name, number in found.items() if number is not None}


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) and 0 <= value < _LARGEST else None
