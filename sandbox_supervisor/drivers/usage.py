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
    """Totals of a session. Agents differ: some report totals with each answer, some each turn, some as updates."""

    def __init__(self) -> None:
        self.totals: dict[str, float] = {}

    def answered(self, result: dict[str, Any]) -> bool:
        """Take a prompt's answer: totals in ``usage``, or one turn's in ``_meta.quota``. True if anything changed."""
        before = dict(self.totals)
        if isinstance(usage := result.get("usage"), dict):
            for theirs, ours in _FIELDS.items():
                self._raise(ours, usage.get(theirs))
        else:
            for ours, value in _quota(result).items():
                self._raise(ours, self.totals.get(ours, 0) + value)
        return self.totals != before

    def updated(self, update: dict[str, Any]) -> bool:
        """Take a ``usage_update``: how full the context is, and the cost so far. True if anything changed."""
        before = dict(self.totals)
        for theirs, ours in (("used", "context_used"), ("size", "context_size")):
            if (number := _number(update.get(theirs))) is not None:
                self.totals[ours] = number
        if isinstance(cost := update.get("cost"), dict):
            self._raise("cost", cost.get("amount"))
        return self.totals != before

    def _raise(self, name: str, value: Any) -> None:
        if (number := _number(value)) is not None:
            self.totals[name] = max(self.totals.get(name, 0), number)


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
