"""The arithmetic of joins: whether a node's needs let it go on, and whether they ever can."""

from dataclasses import dataclass
from enum import StrEnum

from sandbox_supervisor.graph.rows import NodeRow, StalePlan
from sandbox_supervisor.protocol.flow import Join, JoinRule
from sandbox_supervisor.protocol.states import NODE_ENDED, NodeState

TOLERANT = frozenset({JoinRule.ALL_DONE, JoinRule.ANY_SUCCESS, JoinRule.AT_LEAST, JoinRule.ALWAYS})


class Verdict(StrEnum):
    WAIT = "wait"
    FIRE = "fire"
    SKIP = "skip"  # nothing failed, but every need was skipped: so is this node
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Tally:
    """How many needs are in which condition. ``failed`` counts failed, unreachable and cancelled ones."""

    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    pending: int = 0

    @property
    def total(self) -> int:
        return self.succeeded + self.failed + self.skipped + self.pending


def is_settled(row: NodeRow) -> bool:
    """Nothing more will happen to it of itself: it has ended, or it is stale and stays so."""
    return row.state in NODE_ENDED or row.stale is StalePlan.KEPT


def count(needs: list[NodeRow]) -> Tally:
    """Tally needs; a stale result that stays in use counts as a success."""
    succeeded = sum(row.state is NodeState.SUCCEEDED or row.stale is StalePlan.KEPT for row in needs)
    skipped = sum(row.state is NodeState.SKIPPED for row in needs)
    pending = sum(not is_settled(row) for row in needs)
    return Tally(
        succeeded=succeeded, skipped=skipped, pending=pending, failed=len(needs) - succeeded - skipped - pending
    )


def judge(join: Join, tally: Tally) -> Verdict:
    """Say what the tally means under the join's rule; UNREACHABLE as soon as no future can satisfy it."""
    match join.rule:
        case JoinRule.NONE_FAILED_MIN_ONE_SUCCESS:
            return _none_failed(tally)
        case JoinRule.ALL_SUCCESS:
            return _at_least(tally.total, tally)
        case JoinRule.ANY_SUCCESS:
            return _at_least(min(1, tally.total), tally)
        case JoinRule.AT_LEAST:
            return _at_least(join.at_least or 1, tally)
        case JoinRule.ALL_DONE | JoinRule.ALWAYS:
            return Verdict.WAIT if tally.pending else Verdict.FIRE


def _none_failed(tally: Tally) -> Verdict:
    if tally.failed:
        return Verdict.UNREACHABLE
    if tally.pending:
        return Verdict.WAIT
    return Verdict.FIRE if tally.succeeded or not tally.total else Verdict.SKIP


def _at_least(wanted: int, tally: Tally) -> Verdict:
    if tally.succeeded >= wanted:
        return Verdict.FIRE
    return Verdict.WAIT if tally.succeeded + tally.pending >= wanted else Verdict.UNREACHABLE


def tolerates(join: Join, dependant: NodeRow) -> bool:
    """Say whether a dependant took a need's failure into account: its rule allows for it, and its join held."""
    return join.rule in TOLERANT and dependant.fired
