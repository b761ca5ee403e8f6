"""Keep what must outlive the sandbox: artefacts, the final snapshot, capsules; by digest, resumable, within a quota."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import IO

from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import Sum

from sandbox_supervisor.protocol import codec, git_rules
from sandbox_supervisor.protocol.messages import Snapshot
from tasks_app import nudges
from tasks_app.errors import Conflict, NotVisible, Refused
from tasks_app.models import Archive, Task, TaskSnapshot
from tasks_app.models.outcome import ArchiveKind, ArchiveState
from tasks_app.services import clock, lifecycle, retention, uploads
from tasks_app.services.moves import Fact
from tasks_app.texts import without_nul

SNAPSHOT_LIMIT = 16 * 1024 * 1024
FILE_LIMIT = 512 * 1024 * 1024
FILES_PER_TASK = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A file that the sandbox wants to hand over. ``digest`` is ``sha256:<hex>``, ``size`` bytes."""

    kind: ArchiveKind
    digest: str
    size: int
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many bytes are here, and whether that is all and they are the right ones."""

    offset: int
    complete: bool


def progress(task: Task, kind: ArchiveKind, digest: str) -> Progress:
    """Say where an upload goes on; an unknown file goes on at 0."""
    row = Archive.objects.filter(task=task, kind=kind, digest=digest).first()
    return _progress(row) if row else Progress(offset=0, complete=False)


def take(task: Task, announced: Announced, *, offset: int, data: bytes) -> Progress:
    """Store the bytes that begin at ``offset``; the last ones complete the file. Repeating a finished upload is safe.

    Raises Refused (digest, size, quota, content), Conflict with the right ``offset``, DigestMismatch after which the
    upload begins again.
    """
    row = _row(task, announced)
    if row.state == ArchiveState.STORED:
        return _progress(row)
    if offset != row.received:
        raise Conflict("The upload goes on elsewhere.", code="offset_mismatch", offset=row.received)
    end = offset + len(data)
    if len(data) > uploads.CHUNK_LIMIT or end > row.size or (not data and row.size > offset):
        raise Refused("A chunk has 1 byte to 1 MiB and ends within the announced size.", code="chunk_malformed")
    if data:
        uploads.keep_chunk(uploads.folder(row.pk), offset, data)
        Archive.objects.filter(pk=row.pk, received=offset, state=ArchiveState.RECEIVING).update(received=end)
        row.refresh_from_db()
    if row.received == row.size and row.state == ArchiveState.RECEIVING:
        _complete(task, row)
    return _progress(row)


def _progress(row: Archive) -> Progress:
    return Progress(offset=row.received, complete=row.state == ArchiveState.STORED)


def _row(task: Task, announced: Announced) -> Archive:
    """Give the row of an upload, made on its first chunk."""
    known = Archive.objects.filter(task=task, kind=announced.kind, digest=announced.digest).first()
    if known is None:
        _check(task, announced)
        known, _ = Archive.objects.get_or_create(
            task=task,
            kind=announced.kind,
            digest=announced.digest,
            defaults={
                "round": task.round,
                "name": announced.name,
                "size": announced.size,
                "created_at": clock.database_now(),
            },
        )
    if known.size != announced.size:
        raise Refused("This file was announced before with another size.", code="size_differs", size=known.size)
    return known


def _check(task: Task, announced: Announced) -> None:
    if not git_rules.valid_digest(announced.digest):
        raise Refused("A file is named by its digest, sha256:<64 hexadecimal digits>.", code="digest_malformed")
    limit = SNAPSHOT_LIMIT if announced.kind is ArchiveKind.SNAPSHOT else FILE_LIMIT
    if not 0 <= announced.size <= limit:
        raise Refused(f"This kind of file has at most {limit} bytes.", code="file_too_big", limit=limit)
    held = Archive.objects.filter(task=task)
    if held.count() >= FILES_PER_TASK:
        raise Refused(f"A task keeps at most {FILES_PER_TASK} files.", code="too_many_files", limit=FILES_PER_TASK)
    if announced.kind is ArchiveKind.SNAPSHOT:
        return
    quota = int(task.policy.get("artefact_quota", FILE_LIMIT))
    used = held.exclude(kind__in=(ArchiveKind.SNAPSHOT, ArchiveKind.PATCH)).aggregate(total=Sum("size"))["total"] or 0
    if used + announced.size > quota:
        raise Refused(
            f"The task's files would have {used + announced.size} bytes; its frozen quota is {quota}.",
            code="quota_exceeded",
            limit=quota,
            used=used,
        )


def _complete(task: Task, row: Archive) -> None:
    """Check the bytes, keep them by digest and give the receipt."""
    place = uploads.folder(row.pk)
    try:
        with uploads.whole(place, size=row.size, digest=row.digest) as file:
            snapshot = _read_snapshot(task, file) if row.kind == ArchiveKind.SNAPSHOT else None
            name = file_name(task.pk, row.digest)
            uploads.store(name, file, size=row.size)
    except Refused:
        Archive.objects.filter(pk=row.pk, state=ArchiveState.RECEIVING).update(received=0)
        uploads.discard(place)
        raise
    _receipt(task, row, name, snapshot)
    uploads.discard(place)


def _receipt(task: Task, row: Archive, name: str, snapshot: Snapshot | None) -> None:
    now = clock.database_now()
    row.state, row.file, row.stored_at = ArchiveState.STORED, name, now
    with transaction.atomic():
        row.save(update_fields=["state", "file", "stored_at"])
        if snapshot is None:
            return
        _keep_snapshot(task, row, snapshot, now)
    nudges.task_changed(task.pk, task.workspace_id)


def _keep_snapshot(task: Task, row: Archive, snapshot: Snapshot, now: datetime) -> None:
    TaskSnapshot.objects.update_or_create(
        task=task,
        round=snapshot.round,
        defaults={"digest": row.digest, "data": codec.plain(snapshot), "stored_at": now},
    )
    fact = Fact("archive.stored", data={"round": snapshot.round, "digest": row.digest}, key=f"archive:{row.digest}")
    lifecycle.tell(task, [fact], now=now, actor="supervisor", rev=task.rev)
    retention.archive_arrived(task.pk)


def _read_snapshot(task: Task, file: IO[bytes]) -> Snapshot:
    """Read the final snapshot and make sure that it is one of this task. Leaves the file at its beginning."""
    try:
        snapshot = codec.decode(without_nul(file.read()), Snapshot)
    except codec.Malformed as malformed:
        raise Refused(f"The snapshot has not the promised shape: {malformed}.", code="snapshot_malformed") from None
    file.seek(0)
    if not 1 <= snapshot.round <= task.round:
        raise Refused(f"The task is in round {task.round}; this is of {snapshot.round}.", code="snapshot_round")
    known = {node.key for node in task.flow_version.compiled.all_nodes()}
    strange = sorted({node.key for node in snapshot.nodes} - known)
    if strange:
        raise Refused(f"The frozen flow has no node {strange[0][:63]!r}.", code="snapshot_nodes")
    return snapshot


def file_name(task_id: str, digest: str) -> str:
    """Say where a file is kept: apart for each task, so that knowing a digest is not having the file."""
    return f"archives/{task_id}/{digest.removeprefix('sha256:')}"


def keep(task: Task, kind: ArchiveKind, data: bytes, *, name: str) -> Archive:
    """Keep bytes that the control plane made itself. The same bytes again give the same row."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    file, now = file_name(task.pk, digest), clock.database_now()
    uploads.store(file, BytesIO(data), size=len(data))
    row, _ = Archive.objects.get_or_create(
        task=task,
        kind=kind,
        digest=digest,
        defaults={
            "round": task.round,
            "name": name,
            "size": len(data),
            "received": len(data),
            "file": file,
            "state": ArchiveState.STORED,
            "created_at": now,
            "stored_at": now,
        },
    )
    return row


def open_file(task: Task, digest: str) -> "tuple[Archive, File[bytes]]":
    """Open a stored file for reading. Raises NotVisible for what never arrived whole."""
    row = Archive.objects.whole().filter(task=task, digest=digest).order_by("pk").first()
    if row is None or not row.file or not default_storage.exists(row.file):
        raise NotVisible("The archive has no such file.", code="file_unknown")
    return row, default_storage.open(row.file)


def final_snapshot(task: Task) -> Snapshot:
    """Give the newest snapshot that was kept. Raises NotVisible when there is none."""
    row = TaskSnapshot.objects.latest_of(task.pk)
    if row is None:
        raise NotVisible("No snapshot of this task has been stored.", code="snapshot_missing")
    return codec.convert(row.data, Snapshot)
