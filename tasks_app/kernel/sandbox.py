"""Judgements about the sandbox: was it created, is it there, did it start in time."""

from datetime import datetime, timedelta

from sandbox_providers.contract import Observation, State
from tasks_app.kernel.decision import NOTHING, Decision, Suspicion, failed
from tasks_app.kernel.facts import ABSENT_FOR, ABSENT_READS, Creation, FrozenLimits, Seen, TaskFacts
from tasks_app.states import FAILURES, LIVE, FailureCode, Presence, Status

CREATE_AGAIN = timedelta(seconds=5)


def judge_creation(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """Say what the answer to ``create`` means. An ended task only learns that its sandbox exists."""
    if seen.creation is Creation.CREATED and task.presence is Presence.CREATING:
        return Decision(presence=Presence.PRESENT, trouble="")
    if seen.creation is Creation.GAP and task.status is Status.PENDING:
        return failed(FailureCode.CAPABILITY_GAP, "capabilities", seen.cause)
    if task.status is not Status.PROVISIONING or task.presence is Presence.PRESENT:
        return NOTHING
    match seen.creation:
        case Creation.INVALID:
            return failed(FailureCode.INVALID_SPEC, "create", seen.cause)
        case Creation.NO_ROOM | Creation.UNKNOWN:
            return Decision(trouble=f"{seen.creation}: {seen.cause}"[:500], look_again_at=now + CREATE_AGAIN)
        case _:
            return NOTHING


def judge_presence(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """Say what an observation means. An error of the provider never reaches this: it is no observation."""
    observation = seen.observation
    if observation is None or task.presence is not Presence.PRESENT:
        return NOTHING
    if task.instance and observation.instance and observation.instance != task.instance:
        return _gone(task, observation, Presence.LOST, "Its sandbox was replaced by another instance")
    match observation.state:
        case State.ABSENT:
            return _absent(task, observation, now)
        case State.LOST if observation.authoritative:
            return _gone(task, observation, Presence.LOST, "Its sandbox is lost")
        case State.TERMINATED if observation.authoritative:
            return _gone(task, observation, Presence.TERMINATED, "Its sandbox was ended from outside")
        case State.FAILED if observation.authoritative:
            return _failed_inside(task, observation).and_then(_here(task, observation))
        case _:
            return _here(task, observation)


def judge_start_deadline(task: TaskFacts, seen: Seen, now: datetime, limits: FrozenLimits) -> Decision:
    """Fail a task that does not become ready in time; time in which nobody was watching does not count."""
    if task.status is not Status.PROVISIONING or task.provisioning_at is None or seen.watching_since is None:
        return NOTHING
    if now - max(task.provisioning_at, seen.watching_since) <= limits.start_deadline:
        return NOTHING
    code = FailureCode.CAPACITY if task.trouble.startswith(Creation.NO_ROOM) else FailureCode.START_DEADLINE
    message = f"It was not ready within {_words(limits.start_deadline)}."
    return failed(code, "start", f"{message} {task.trouble}".strip())


def _here(task: TaskFacts, observation: Observation) -> Decision:
    """The sandbox answers for itself: no suspicion; learn its instance and where it listens."""
    return Decision(
        suspicion=Suspicion() if task.absent_reads else None,
        instance=observation.instance if observation.instance and not task.instance else None,
        endpoint=observation.endpoint if observation.endpoint != task.endpoint else None,
    )


def _absent(task: TaskFacts, observation: Observation, now: datetime) -> Decision:
    since, reads = task.absent_since or now, task.absent_reads + 1
    if reads >= ABSENT_READS and now - since >= ABSENT_FOR:
        return _gone(task, observation, Presence.LOST, f"The provider found no trace of its sandbox {reads} times")
    return Decision(suspicion=Suspicion(since=since, reads=reads))


def _gone(task: TaskFacts, observation: Observation, presence: Presence, message: str) -> Decision:
    gone = Decision(presence=presence)
    if task.status not in LIVE:
        return gone
    code = _code(task.status, observation.reason, FailureCode.SANDBOX_LOST)
    told = f"{message}: {observation.cause}" if observation.cause else f"{message}."
    return failed(code, "sandbox", told, reason=observation.reason).and_then(gone)


def _failed_inside(task: TaskFacts, observation: Observation) -> Decision:
    if task.status not in LIVE:
        return NOTHING
    code = _code(task.status, observation.reason, FailureCode.SANDBOX_FAILED)
    facts = dict(observation.evidence)
    return failed(
        code, "sandbox", observation.cause or "Its sandbox failed.", reason=observation.reason, evidence=facts
    )


def _code(status: Status, reason: str, otherwise: FailureCode) -> FailureCode:
    """Take the provider's reason where the table of this status knows it."""
    return next((code for code in FAILURES[status] if code == reason), otherwise)


def _words(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
