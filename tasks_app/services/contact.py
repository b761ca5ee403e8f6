"""What supervisors report, and the silence of those that do not."""

from datetime import datetime, timedelta
from itertools import islice

import structlog
from django.db.models import Q

from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.messages import Desired, Heartbeat, HeartbeatAnswer
from tasks_app import bars, nudges
from tasks_app.kernel import BEAT, NOT_NEWS, SILENCE, Admission, Seen, TaskFacts, Want, admit, desired
from tasks_app.models import Delivery, Task, TaskContact
from tasks_app.services import clock, leases, lifecycle, observation, probe
from tasks_app.services.facts import ImpossibleRow, facts_of
from tasks_app.services.proof import archive_settled, delivery_proof
from tasks_app.services.tokens import dial_token
from tasks_app.states import LIVE, Presence, Status
from tasks_app.timetable import TIMETABLE

log = structlog.get_logger()

PERIOD = TIMETABLE["contact"].period
PATIENCE = 3 * PERIOD  # an older tick means that nobody was watching
EAGER = 0.2  # seconds; a supervisor that is ready while its sandbox is not bound yet asks again this soon
BEFORE_LAST = timedelta(minutes=1)
BIGGEST = 2**31 - 1
MOST_WORDS = 50
STRANGE = frozenset({Admission.OTHER_INSTANCE, Admission.OTHER_EPOCH})


def record_heartbeat(task_id: str, heartbeat: Heartbeat) -> HeartbeatAnswer:
    """Take a heartbeat, commit what it means, and say what the supervisor is to do.

    One of another instance or epoch is noted and answered with *stop*, an older one noted, a repeated one answered
    again. Before the sandbox is bound nothing is taken from it. Raises Malformed for what cannot be, NotVisible.
    """
    _check(heartbeat)
    observation.first_sight(task_id)
    task, contact = lifecycle.read(task_id)
    facts = lifecycle.facts_or_quarantine(task, contact) if task.instance and not task.quarantine else None
    if facts is None:
        return _answer(task, heartbeat, None)
    if admit(facts, heartbeat) not in NOT_NEWS and _take(task, heartbeat):
        _show(task, contact, heartbeat)
    task = lifecycle.settle(task_id, lambda task, *_: _seen(task, heartbeat), actor="supervisor")
    return _answer(task, heartbeat, contact.last_contact_at)


def _show(task: Task, contact: TaskContact, heartbeat: Heartbeat) -> None:
    """Keep what the lists show, and tell open pages when a person is waited for, or is no more."""
    if heartbeat.attention != contact.attention:
        nudges.task_changed(task.pk, task.workspace_id)
    try:
        bars.remember(task.pk, heartbeat.bar[:10_000])
    except Exception as error:  # noqa: BLE001 - a cache that is away costs the list its bar, and nothing else
        log.warning("bar_not_cached", task_id=task.pk, error=type(error).__name__)


def _check(heartbeat: Heartbeat) -> None:
    numbers = (heartbeat.boot, heartbeat.round, heartbeat.beat, heartbeat.attention)
    if any(not 0 <= number <= BIGGEST for number in numbers) or not 0 <= heartbeat.head.seq <= 2**62:
        raise Malformed("a number of the heartbeat is out of range")
    if not heartbeat.epoch or not heartbeat.instance:
        raise Malformed("the heartbeat names no instance or no epoch")
    texts = (heartbeat.epoch, heartbeat.head.chain, heartbeat.specification, heartbeat.fingerprint)
    if any(len(text) > 64 + 8 for text in texts) or len(heartbeat.instance) > 200:
        raise Malformed("a text of the heartbeat is too long")


def _take(task: Task, beat: Heartbeat) -> bool:
    """Move the contact row forward, never back. False when a newer heartbeat was quicker."""
    older = (
        Q(boot__lt=beat.boot)
        | Q(boot=beat.boot, round__lt=beat.round)
        | Q(boot=beat.boot, round=beat.round, beat__lte=beat.beat)
    )
    mine = Q(epoch="") | (Q(epoch=beat.epoch, instance=beat.instance) & older)
    taken = TaskContact.objects.filter(mine, pk=task.pk).update(
        last_contact_at=clock.database_now(),
        instance=beat.instance,
        epoch=beat.epoch,
        boot=beat.boot,
        round=beat.round,
        beat=beat.beat,
        head_seq=beat.head.seq,
        head_chain=beat.head.chain,
        ready=beat.ready,
        readiness={key[:100]: word[:300] for key, word in islice(beat.readiness.items(), MOST_WORDS)},
        attention=beat.attention,
        usage={key[:100]: number for key, number in islice(beat.usage.items(), MOST_WORDS)},
        disk_used=max(0, min(beat.disk_used, 2**62)),
        memory_used=max(0, min(beat.memory_used, 2**62)),
        protocol=max(0, min(beat.protocol, BIGGEST)),
    )
    return taken == 1


def _seen(task: Task, heartbeat: Heartbeat) -> Seen:
    return Seen(
        report=heartbeat,
        proof=delivery_proof(task, heartbeat.delivery),
        archive_stored=archive_settled(task, task.contact),
    )


def _answer(task: Task, heartbeat: Heartbeat, before: datetime | None) -> HeartbeatAnswer:
    now = clock.database_now()
    try:
        facts = facts_of(task, task.contact)
    except ImpossibleRow:
        wanted, strange = Desired.HOLD, False
    else:
        wanted, strange = desired(facts), admit(facts, heartbeat) in STRANGE
    ended = task.status not in LIVE or task.delete_requested_at is not None
    return HeartbeatAnswer(
        status=task.status,
        round=task.round,
        desired=Desired.STOP if strange else wanted,
        reason="not_bound" if strange else task.failure_code or task.removal_reason,
        interval=EAGER if _is_waiting(task, heartbeat) else BEAT.total_seconds(),
        server_time=now.isoformat(timespec="milliseconds"),
        deliveries=_settled(task, before or now),
        archive_wanted=ended and not archive_settled(task, task.contact),
        acknowledged=heartbeat.head,
    )


def _is_waiting(task: Task, heartbeat: Heartbeat) -> bool:
    return heartbeat.ready and task.status == Status.PROVISIONING and task.presence == Presence.CREATING


def _settled(task: Task, since: datetime) -> tuple[str, ...]:
    recent = Delivery.objects.filter(task=task).settled_since(since - BEFORE_LAST)
    return tuple(recent.values_list("pk", flat=True)[:MOST_WORDS])


def sweep() -> int:
    """Judge silence, start deadlines and deletions of every task that needs it. Gives how many were judged.

    Silence counts from the moment since which these sweeps have missed no tick: an outage of our own is nobody's fault.
    """
    now = clock.database_now()
    due = list(Task.objects.to_be_judged(now - SILENCE).order_by("pk").values_list("pk", flat=True))
    watch()
    for task_id in due:
        try:
            judge(task_id, watch())
        except Exception:
            log.exception("contact_not_judged", task_id=task_id)
    return len(due)


def watch() -> datetime:
    """Leave a tick, also between two slow probes; give since when no tick was missed."""
    return leases.tick("sweep:contact", now=clock.database_now(), patience=PATIENCE)


def judge(task_id: str, watching_since: datetime) -> Task:
    """Judge one task's silence; its supervisor is asked directly before anything is said against it."""

    def see(task: Task, facts: TaskFacts, wants: frozenset[Want]) -> Seen:
        asked = probe.answers(facts.endpoint, dial_token(task)) if Want.PROBE in wants else None
        return Seen(probe=asked, watching_since=watching_since, archive_stored=archive_settled(task, task.contact))

    return lifecycle.settle(task_id, see, actor="system:contact")
