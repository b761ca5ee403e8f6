"""Heartbeats, the specification, artefacts, deliveries and archives: thin callers of the services."""

from django.http import HttpRequest, HttpResponse

from sandbox_supervisor.protocol.messages import DeliveryRequest, Heartbeat
from tasks_app.errors import NotVisible
from tasks_app.internal import gate
from tasks_app.models import Task
from tasks_app.models.outcome import ArchiveKind
from tasks_app.services import archive, contact, delivery
from tasks_app.services.tokens import Scope
from tasks_app.texts import clean_line

KINDS = {str(kind): kind for kind in ArchiveKind if kind not in {ArchiveKind.ARTEFACT, ArchiveKind.PATCH}}


@gate.sandbox(Scope.HEARTBEAT, "POST")
def heartbeat(request: HttpRequest, task: Task) -> HttpResponse:
    """Take a heartbeat and say what the supervisor is to do."""
    return gate.answer(contact.record_heartbeat(task.pk, gate.read(request, Heartbeat)))


@gate.sandbox(Scope.DOWNLOAD, "GET")
def spec(request: HttpRequest, task: Task) -> HttpResponse:
    """Give the frozen specification, byte for byte."""
    response = HttpResponse(bytes(task.specification), content_type="application/json")
    response["ETag"] = f'"{task.specification_digest}"'
    return response


@gate.sandbox(Scope.ARCHIVE, "GET", "HEAD", "PUT")
def artefact(request: HttpRequest, task: Task, digest: str) -> HttpResponse:
    """Take a chunk of an artefact, or say where its upload goes on."""
    return _upload(request, task, ArchiveKind.ARTEFACT, f"sha256:{digest}")


@gate.sandbox(Scope.ARCHIVE, "GET", "HEAD", "PUT")
def archived(request: HttpRequest, task: Task, kind: str) -> HttpResponse:
    """Take a chunk of the final snapshot, a capsule or parked work, or say where its upload goes on."""
    if kind not in KINDS:
        raise NotVisible(f"There is no archive of this kind; kinds: {', '.join(KINDS)}.", code="archive_kind")
    digest = request.GET.get("digest", "")
    return _upload(request, task, KINDS[kind], digest if ":" in digest else f"sha256:{digest}")


def _upload(request: HttpRequest, task: Task, kind: ArchiveKind, digest: str) -> HttpResponse:
    if request.method != "PUT":
        progress = archive.progress(task, kind, digest)
        response = gate.answer(progress)
        response["Upload-Offset"] = str(progress.offset)
        return response
    announced = archive.Announced(
        kind=kind, digest=digest, size=gate.number(request, "size"), name=clean_line(request.GET.get("name", ""), 500)
    )
    taken = archive.take(task, announced, offset=gate.number(request, "offset"), data=gate.body(request))
    return gate.answer(taken, status=201 if taken.complete else 202)


@gate.sandbox(Scope.DELIVER, "POST")
def deliveries(request: HttpRequest, task: Task) -> HttpResponse:
    """Take a delivery request; the same one again gives the same delivery."""
    return gate.answer(delivery.receive(task, gate.read(request, DeliveryRequest)))


@gate.sandbox(Scope.DELIVER, "PUT")
def bundle(request: HttpRequest, task: Task, delivery_id: str) -> HttpResponse:
    """Take a chunk of the bundle."""
    taken = delivery.accept_chunk(task, delivery_id, offset=gate.number(request, "offset"), data=gate.body(request))
    return gate.answer(taken, status=202)


@gate.sandbox(Scope.ARCHIVE, "GET")
def one_delivery(request: HttpRequest, task: Task, delivery_id: str) -> HttpResponse:
    """Say how a delivery stands, for as long as the sandbox stands."""
    return gate.answer(delivery.answer(delivery.find(task, delivery_id)))
