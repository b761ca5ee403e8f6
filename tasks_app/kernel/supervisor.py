"""Judgements about the supervisor: is it heard, is it ready, has its graph ended or begun anew."""

from datetime import datetime
from enum import StrEnum

from sandbox_supervisor.protocol.messages import Desired, Heartbeat
from sandbox_supervisor.protocol.states import GraphState, NodeState
from tasks_app.kernel.decision import NOTHING, Decision, Note, Want, failed
from tasks_app.kernel.facts import REOPEN_MARGIN, SILENCE, FrozenLimits, Proof, Seen, TaskFacts
from tasks_app.states import LIVE, TERMINAL, FailureCode, Health, Presence, Status

STORAGE = frozenset({FailureCode.STORAGE_FAILED, FailureCode.STORAGE_CORRUPT})
BEFORE_READINESS = STORAGE | {FailureCode.MATERIALISATION_FAILED, FailureCode.INVALID_SPEC}


class Admission(StrEnum):
    """Whether a heartbeat tells of the life that is bound to the task, and of now."""

    ADMITTED = "admitted"
    REPEATED = "repeated"  # the very last one once more
    LATE = "late"
    OTHER_INSTANCE = "other_instance"
    OTHER_EPOCH = "other_epoch"


NOT_NEWS = frozenset({Admission.LATE, Admission.OTHER_INSTANCE, Admission.OTHER_EPOCH})


def admit(task: TaskFacts, report: Heartbeat) -> Admission:
    """Compare a heartbeat with the bound instance and the last one taken: instance, epoch, boot, round, beat."""
    if task.instance and report.instance != task.instance:
        return Admission.OTHER_INSTANCE
    if task.heard is None:
        return Admission.ADMITTED
    if report.instance != task.heard.instance:
        return Admission.OTHER_INSTANCE
    if report.epoch != task.heard.epoch:
        return Admission.OTHER_EPOCH
    mine, theirs = (task.heard.boot, task.heard.round, task.heard.beat), (report.boot, report.round, report.beat)
    if theirs == mine:
        return Admission.REPEATED
    return Admission.ADMITTED if theirs > mine else Admission.LATE


def judge_order(task: TaskFacts, report: Heartbeat) -> Decision:
    """Note a heartbeat of another life or an older one, once per kind and round."""
    admission = admit(task, report)
    if admission not in NOT_NEWS:
        return NOTHING
    note = Note(
        kind="task.late_report",
        key=f"late_report:{admission}:{task.round}",
        data={"why": admission, "boot": report.boot, "round": report.round, "graph": report.graph},
    )
    return Decision(notes=(note,))


def judge_contact(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """Say whether the supervisor is heard, and fail the task when it was not for longer than the grace.

    Only time in which the control plane itself was watching counts; before each verdict the supervisor is asked itself.
    """
    if seen.report is not None or seen.probe:
        heard = Decision(contact_at=now if seen.probe else None)
        return heard.and_then(NOTHING if task.health is Health.REACHABLE else Decision(health=Health.REACHABLE))
    watching_since = seen.watching_since
    if watching_since is None or task.last_contact_at is None or task.presence is not Presence.PRESENT:
        return NOTHING
    if task.health is not Health.UNREACHABLE:
        return _silence(max(task.last_contact_at, watching_since), seen, now)
    if task.unreachable_since is None or task.unreachable_since < watching_since:
        return Decision(health=Health.UNREACHABLE, unreachable_since=watching_since)
    if task.status not in LIVE or now - task.unreachable_since <= limits.grace:
        return NOTHING
    if seen.probe is None:
        return Decision(wants=frozenset({Want.PROBE}))
    return failed(
        FailureCode.CONNECTION_LOST,
        "contact",
        f"Its supervisor was not heard for {limits.grace.total_seconds():g} s and did not answer when asked directly.",
        unreachable_since=task.unreachable_since.isoformat(),
    )


def _silence(since: datetime, seen: Seen, now: datetime) -> Decision:
    if now - since <= SILENCE:
        return NOTHING
    if seen.probe is None:
        return Decision(wants=frozenset({Want.PROBE}))
    return Decision(health=Health.UNREACHABLE, unreachable_since=now)


def judge_readiness(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """Start a task when its bound instance says that everything is ready, with the specification that was frozen."""
    report = seen.report
    if report is None or task.status is not Status.PROVISIONING or task.end_is_wanted:
        return NOTHING
    if report.specification != task.specification:
        return failed(FailureCode.INVALID_SPEC, "readiness", "Its sandbox runs another specification than was frozen.")
    if report.graph is GraphState.FAILED:
        return _unfit(report)
    known = task.presence is Presence.PRESENT and task.instance and task.endpoint is not None
    return Decision(status=Status.RUNNING) if report.ready and known else NOTHING


def _unfit(report: Heartbeat) -> Decision:
    found = report.failure
    code = FailureCode.SANDBOX_FAILED
    if found is not None and found.code in BEFORE_READINESS:
        code = FailureCode(found.code)
    return failed(code, "readiness", found.message if found else "Its supervisor could not start.")


def judge_end(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """Take the supervisor's word that the graph has ended; success only with the proof that the flow asks for."""
    report = seen.report
    if report is None or task.status not in {Status.PROVISIONING, Status.RUNNING} or report.round < task.round:
        return NOTHING
    if report.graph is GraphState.CANCELLED and (task.status is Status.RUNNING or task.end_is_wanted):
        return Decision(status=Status.CANCELLED, round=_newer(task, report))
    if task.status is Status.PROVISIONING:
        return NOTHING
    ended = _end_of_storage(report) or _end_of_graph(report, seen.proof)
    return ended.and_then(Decision(round=_newer(task, report)))


def _newer(task: TaskFacts, report: Heartbeat) -> int | None:
    return report.round if report.round > task.round else None


def _end_of_storage(report: Heartbeat) -> Decision:
    if report.failure is None or report.failure.code not in STORAGE:
        return NOTHING
    return failed(FailureCode(report.failure.code), "storage", report.failure.message)


def _end_of_graph(report: Heartbeat, proof: Proof) -> Decision:
    if report.graph is GraphState.FAILED:
        return _failed_graph(report)
    if report.graph is not GraphState.SUCCEEDED:
        return NOTHING
    if proof is Proof.MISSING:
        message = "The graph succeeded, but no delivery was recorded and read back."
        return failed(FailureCode.DELIVERY_FAILED, "delivery", message)
    return Decision(status=Status.COMPLETED)


def _failed_graph(report: Heartbeat) -> Decision:
    delivery = report.delivery
    code = FailureCode.NODE_FAILED
    if delivery is not None and delivery.state is NodeState.FAILED:
        code = FailureCode.DELIVERY_FAILED
    if report.failure is None:
        return failed(code, "graph", "A node failed.")
    inner = {"class": report.failure.failure_class, "code": report.failure.code, **report.failure.facts}
    return failed(code, "graph", report.failure.message, cause=inner)


def judge_reopen(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """Reopen an ended task whose supervisor has begun a new round, inside the window and with time to start."""
    report = seen.report
    if report is None or task.status not in TERMINAL or report.round <= task.round:
        return NOTHING
    why = _why_not_reopen(task, now)
    if why:
        key = f"reopen_refused:{report.round}"
        return Decision(notes=(Note(kind="task.reopen_refused", key=key, data={"why": why, "round": report.round}),))
    return Decision(status=Status.RUNNING, reopened=True, round=report.round)


def _why_not_reopen(task: TaskFacts, now: datetime) -> str:
    if task.delete_requested_at is not None:
        return "deleted"
    if task.presence is not Presence.PRESENT:
        return "no_sandbox"
    if task.failure is FailureCode.CREDENTIAL_REVOKED:
        return "credential_revoked"
    if task.retain_until is None or task.retain_until - now < REOPEN_MARGIN:
        return "too_late"
    return ""


def desired(task: TaskFacts) -> Desired:
    """Say what the supervisor is to do."""
    if task.status in TERMINAL:
        return Desired.STOP
    if task.end_is_wanted:
        return Desired.CANCEL
    return Desired.RUN if task.status is Status.RUNNING else Desired.HOLD
