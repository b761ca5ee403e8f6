"""Every verdict about a task, as one pure function of facts. Imports nothing of Django.

Heartbeats, sweeps, API calls and jobs gather facts, call ``decide`` and let ``services/lifecycle`` write the result.
The simulator in the tests runs the same function.
"""

from dataclasses import replace
from datetime import datetime

from tasks_app.kernel.decision import NOTHING, Decision, Failure, Note, Suspicion, Want
from tasks_app.kernel.deployment import SOUND, Epoch, Epochs, Standing, judge_epochs
from tasks_app.kernel.facts import (
    ABSENT_FOR,
    ABSENT_READS,
    BEAT,
    REOPEN_MARGIN,
    SILENCE,
    SKEW_GUARD,
    SNAPSHOT_PATIENCE,
    Creation,
    Fence,
    FrozenLimits,
    Proof,
    Seen,
    TaskFacts,
)
from tasks_app.kernel.person import judge_cancel, judge_delete, judge_retention
from tasks_app.kernel.sandbox import judge_creation, judge_presence, judge_start_deadline
from tasks_app.kernel.supervisor import (
    NOT_NEWS,
    Admission,
    admit,
    desired,
    judge_contact,
    judge_end,
    judge_order,
    judge_readiness,
    judge_reopen,
)

JUDGEMENTS = (
    judge_end,
    judge_delete,
    judge_cancel,
    judge_creation,
    judge_presence,
    judge_readiness,
    judge_contact,
    judge_start_deadline,
    judge_reopen,
    judge_retention,
)
"""In this order: where two of them speak of the status, the first one holds."""


def decide(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """Say what the facts mean at ``now`` (database clock, UTC).

    A heartbeat of another life, or an older one, is noted and otherwise not there. Deciding again on the result
    settles: it may say one thing more (a reopened graph that has already ended again), then nothing.
    """
    decision = NOTHING
    if seen.report is not None:
        decision = judge_order(task, seen.report)
        seen = replace(seen, report=None if decision else seen.report)
    for judge in JUDGEMENTS:
        decision = decision.and_then(judge(task, seen, now, limits))
    return decision


__all__ = [
    "ABSENT_FOR",
    "ABSENT_READS",
    "BEAT",
    "JUDGEMENTS",
    "NOTHING",
    "NOT_NEWS",
    "REOPEN_MARGIN",
    "SILENCE",
    "SKEW_GUARD",
    "SNAPSHOT_PATIENCE",
    "SOUND",
    "Admission",
    "Creation",
    "Decision",
    "Epoch",
    "Epochs",
    "Failure",
    "Fence",
    "FrozenLimits",
    "Note",
    "Proof",
    "Seen",
    "Standing",
    "Suspicion",
    "TaskFacts",
    "Want",
    "admit",
    "decide",
    "desired",
    "judge_cancel",
    "judge_contact",
    "judge_creation",
    "judge_delete",
    "judge_end",
    "judge_epochs",
    "judge_order",
    "judge_presence",
    "judge_readiness",
    "judge_reopen",
    "judge_retention",
    "judge_start_deadline",
]
