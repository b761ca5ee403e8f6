"""Take a delivery from a sandbox: the request once, its bundle in chunks, then hand it to a worker."""

from django.db import IntegrityError, transaction

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import DeliveryAnswer, DeliveryRequest, DeliveryState
from tasks_app import queue, texts
from tasks_app.errors import Conflict, KeyReused, NotVisible, Refused
from tasks_app.models import Delivery, Task
from tasks_app.models.outcome import DeliveryKind
from tasks_app.services import clock, uploads
from tasks_app.services.delivery import checks, limits, outcome


def receive(task: Task, request: DeliveryRequest) -> DeliveryAnswer:
    """Record a delivery, or answer for the one that is there.

    Idempotent by (task, node, generation, kind): the same commit again gives the same row, and may bring a bundle that
    was packed anew while the first one is incomplete. Raises KeyReused for another commit, Refused by ``checks``.
    """
    checks.check_request(task, request)
    try:
        with transaction.atomic():
            return answer(_insert(task, request))
    except IntegrityError:
        return answer(_adopt(task, request))


def _insert(task: Task, request: DeliveryRequest) -> Delivery:
    nothing = request.commit == request.base_commit
    now = clock.database_now()
    delivery = Delivery.objects.create(
        task=task,
        node=request.node,
        generation=request.generation,
        round=request.round,
        key=request.key,
        request_digest=_identity(request),
        state=DeliveryState.NOTHING if nothing else DeliveryState.RECEIVED,
        branch="" if nothing else task.task_branch,
        base_commit=request.base_commit,
        commit="" if nothing else request.commit,
        title=texts.clean_line(request.title, limits.TITLE_LIMIT) or task.title,
        body=texts.clean_text(request.body, limits.BODY_LIMIT),
        draft=request.draft,
        wants_change_request=request.change_request,
        bundle_digest="" if nothing else request.bundle_digest or "",
        bundle_size=0 if nothing else request.bundle_size,
        created_at=now,
        settled_at=now if nothing else None,
    )
    if nothing:
        outcome.tell(delivery)
    return delivery


def _adopt(task: Task, request: DeliveryRequest) -> Delivery:
    delivery = Delivery.objects.get(task=task, node=request.node, generation=request.generation, kind=DeliveryKind.PUSH)
    if delivery.request_digest != _identity(request):
        raise KeyReused("This node and generation have already delivered another commit.", code="delivery_key_reused")
    if delivery.state == DeliveryState.RECEIVED and request.bundle_digest != delivery.bundle_digest:
        _begin_again(delivery, request)
    return delivery


def _begin_again(delivery: Delivery, request: DeliveryRequest) -> None:
    """The supervisor packed the same commit anew, into other bytes: what has arrived is of no use."""
    uploads.discard(uploads.folder(delivery.pk))
    delivery.bundle_digest = request.bundle_digest or ""
    delivery.bundle_size = request.bundle_size
    delivery.bundle_received = 0
    delivery.save(update_fields=["bundle_digest", "bundle_size", "bundle_received"])


def _identity(request: DeliveryRequest) -> str:
    return codec.digest([request.node, request.generation, request.base_commit, request.commit])


def accept_chunk(task: Task, delivery_id: str, *, offset: int, data: bytes) -> DeliveryAnswer:
    """Take the bytes of the bundle that begin at ``offset``; the last ones hand the delivery to a worker.

    Raises NotVisible for another task's delivery, Conflict with the right ``offset``, Refused for too many bytes,
    DigestMismatch after the last ones.
    """
    delivery = find(task, delivery_id)
    if delivery.state != DeliveryState.RECEIVED:
        return answer(delivery)
    if offset != delivery.bundle_received:
        raise Conflict("The upload goes on elsewhere.", code="offset_mismatch", offset=delivery.bundle_received)
    end = offset + len(data)
    if not data or len(data) > uploads.CHUNK_LIMIT or end > delivery.bundle_size:
        raise Refused("A chunk has 1 byte to 1 MiB and ends within the announced size.", code="chunk_malformed")
    uploads.keep_chunk(uploads.folder(delivery.pk), offset, data)
    complete = end == delivery.bundle_size
    if complete:
        _check_whole(delivery)
    with transaction.atomic():
        moved = Delivery.objects.filter(
            pk=delivery.pk,
            state=DeliveryState.RECEIVED,
            bundle_received=offset,
            bundle_digest=delivery.bundle_digest,
        ).update(bundle_received=end, state=DeliveryState.QUEUED if complete else DeliveryState.RECEIVED)
        if moved and complete:
            queue.deliver(delivery.pk)
    delivery.refresh_from_db()
    return answer(delivery)


def _check_whole(delivery: Delivery) -> None:
    """Raise DigestMismatch, and have the upload begin again, unless the announced bytes have arrived."""
    try:
        uploads.check(uploads.folder(delivery.pk), size=delivery.bundle_size, digest=delivery.bundle_digest)
    except uploads.DigestMismatch:
        Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.RECEIVED).update(bundle_received=0)
        raise


def find(task: Task, delivery_id: str) -> Delivery:
    """Give the task's delivery. Raises NotVisible, also for the delivery of another task."""
    delivery = Delivery.objects.filter(task=task, pk=delivery_id).first()
    if delivery is None:
        raise NotVisible("This task has no such delivery.", code="delivery_unknown")
    return delivery


def answer(delivery: Delivery) -> DeliveryAnswer:
    """Say how a delivery stands."""
    return DeliveryAnswer(
        id=delivery.pk,
        state=DeliveryState(delivery.state),
        offset=delivery.bundle_received,
        branch=delivery.branch,
        commit=delivery.commit or None,
        change_request=delivery.change_request,
        code=delivery.code,
        message=delivery.message,
    )
