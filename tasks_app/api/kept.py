"""What the control plane keeps of a task: history, final snapshot, archived files, deliveries."""

from urllib.parse import quote

from django.http import FileResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from sandbox_supervisor.protocol.messages import Snapshot
from tasks_app.api import shapes
from tasks_app.api.gates import visible_task
from tasks_app.api.records import archive_record, delivery_record, event_record
from tasks_app.errors import NotVisible
from tasks_app.models import Archive, Delivery, Task, TaskEvent
from tasks_app.services import archive
from workspaces_app.rest.paging import PageQuery, page
from workspaces_app.rest.views import ApiView, Method, answer, declare, not_modified, strong

BYTES = "application/octet-stream"
UNTRUSTED = "sandbox; default-src 'none'"  # the policy for whatever comes out of a sandbox


class TaskEvents(ApiView):
    """The history of a task."""

    methods = declare(GET=Method(shapes.EventPage, query=PageQuery))

    def get(self, request: Request, task_id: str) -> Response:
        """List what happened to the task, oldest first."""
        task = visible_task(self.actor, task_id)
        found = page(TaskEvent.objects.filter(task=task), self.asked, newest_first=False)
        data = tuple(event_record(event) for event in found.rows)
        return answer(shapes.EventPage(data=data, next_cursor=found.next_cursor))


class TaskFinalSnapshot(ApiView):
    """The final picture of a task's graph, kept after its sandbox."""

    methods = declare(GET=Method(Snapshot))

    def get(self, request: Request, task_id: str) -> Response:
        """Read nodes, results, attempts and code revisions as the supervisor told them last."""
        task = visible_task(self.actor, task_id)
        row = task.snapshots.order_by("-round").first()
        etag = strong(row.digest) if row else ""
        if row and not_modified(request, etag):
            return Response(status=304, headers={"ETag": etag})
        return answer(archive.final_snapshot(task), headers={"ETag": etag})


class TaskArchive(ApiView):
    """The files that were kept of a task."""

    methods = declare(GET=Method(shapes.ArchivePage, query=PageQuery))

    def get(self, request: Request, task_id: str) -> Response:
        """List artefacts, snapshots and patches with their receipts, newest first."""
        task = visible_task(self.actor, task_id)
        found = page(Archive.objects.filter(task=task), self.asked)
        data = tuple(archive_record(row) for row in found.rows)
        return answer(shapes.ArchivePage(data=data, next_cursor=found.next_cursor))


class TaskArchivedFile(ApiView):
    """One file that was kept of a task."""

    methods = declare(GET=Method(None, media_type=BYTES))

    def get(self, request: Request, task_id: str, digest: str) -> HttpResponseBase:
        """Download a kept file by its digest."""
        return download(request, visible_task(self.actor, task_id), digest)


class TaskDeliveries(ApiView):
    """What left the sandbox for the remote."""

    methods = declare(GET=Method(shapes.DeliveryPage, query=PageQuery))

    def get(self, request: Request, task_id: str) -> Response:
        """List deliveries, oldest first. A retry is a rerun of the delivery node."""
        task = visible_task(self.actor, task_id)
        found = page(Delivery.objects.filter(task=task), self.asked, newest_first=False)
        data = tuple(delivery_record(row) for row in found.rows)
        return answer(shapes.DeliveryPage(data=data, next_cursor=found.next_cursor))


class OneDelivery(ApiView):
    """One delivery."""

    methods = declare(GET=Method(shapes.DeliveryRecord))

    def get(self, request: Request, task_id: str, delivery_id: str) -> Response:
        """Read a delivery."""
        return answer(delivery_record(_delivery(visible_task(self.actor, task_id), delivery_id)))


class DeliveryPatch(ApiView):
    """A delivery as one patch."""

    methods = declare(GET=Method(None, media_type=BYTES))

    def get(self, request: Request, task_id: str, delivery_id: str) -> HttpResponseBase:
        """Download the whole difference from the baseline; `git am` applies it."""
        task = visible_task(self.actor, task_id)
        digest = (_delivery(task, delivery_id).facts.get("patch") or {}).get("digest")
        if not digest:
            raise NotVisible("There is no patch of this delivery.", code="patch_missing")
        return download(request, task, digest)


def _delivery(task: Task, delivery_id: str) -> Delivery:
    row = Delivery.objects.filter(task=task, pk=delivery_id).first()
    if row is None:
        raise NotVisible("This task has no such delivery.", code="delivery_unknown")
    return row


def download(request: Request, task: Task, digest: str) -> HttpResponseBase:
    """Give a kept file as an attachment of no particular type: it is a stranger's."""
    row, file = archive.open_file(task, digest)
    etag = strong(row.digest)
    if not_modified(request, etag):
        file.close()
        return Response(status=304, headers={"ETag": etag})
    response = FileResponse(file, content_type=BYTES)
    name = row.name.rpartition("/")[2] or digest.removeprefix("sha256:")
    response["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    response["Content-Length"] = str(row.size)
    response["ETag"] = etag
    response["Content-Security-Policy"] = UNTRUSTED
    return response
