"""Judge a node's ``when`` (and a rework's): dotted references against values, nothing evaluated as code."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sandbox_supervisor.protocol.flow import Condition, Operator


class Missing(Enum):
    """What a lookup gives for a reference to nothing; unlike None, which is a value."""

    MISSING = "missing"


MISSING = Missing.MISSING
Lookup = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Judgement:
    """``problem`` is a failure code when the question itself was wrong; then ``holds`` is False and means nothing."""

    holds: bool
    reference: str = ""  # the entry that decided
    problem: str | None = None


def judge(conditions: tuple[Condition, ...], lookup: Lookup) -> Judgement:
    """Say whether all conditions hold. A wrong one wins over a false one, wherever it stands."""
    judgements = [_judge_one(condition, lookup(condition.reference)) for condition in conditions]
    for judgement in judgements:
        if judgement.problem:
            return judgement
    for judgement in judgements:
        if not judgement.holds:
            return judgement
    return Judgement(holds=True)


def _judge_one(condition: Condition, value: Any) -> Judgement:
    reference = condition.reference
    if condition.operator is Operator.EXISTS:
        return Judgement((value is not MISSING) is bool(condition.value), reference)
    if value is MISSING:
        return Judgement(False, reference, "missing_reference")
    match condition.operator:
        case Operator.EQ:
            return Judgement(same(value, condition.value), reference)
        case Operator.NOT:
            return Judgement(not _is_one_of(value, condition.value), reference)
        case Operator.IN:
            return Judgement(_is_one_of(value, condition.value), reference)
        case Operator.GT | Operator.LT:
            return _compare(condition, value)


def _compare(condition: Condition, value: Any) -> Judgement:
    limit = condition.value
    if not (_is_number(value) and _is_number(limit)):
        return Judgement(False, condition.reference, "condition_type")
    holds = value > limit if condition.operator is Operator.GT else value < limit
    return Judgement(holds, condition.reference)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_one_of(value: Any, wanted: Any) -> bool:
    """``wanted`` is one value or a list of values; a list also equals itself."""
    if same(value, wanted):
        return True
    return isinstance(wanted, list | tuple) and any(same(value, one) for one in wanted)


def same(left: Any, right: Any) -> bool:
    """Compare as JSON does: ``true`` is not 1, 1 is 1.0, a tuple is a list."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


def dig(value: Any, path: list[str]) -> Any:
    """Follow ``path`` through mappings; MISSING as soon as a step has no such key."""
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return MISSING
        value = value[step]
    return value
