"""Tasks: list, create, try out, read, rename, cancel, delete."""

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.api import shapes
from tasks_app.api.gates import task_request, visible_task
from tasks_app.api.records import RELATED, created_task, flow_reference, frozen_task, task_record
from tasks_app.errors import Conflict, Refused
from tasks_app.models import Task
from tasks_app.services import clock, lifecycle, naming, retention
from tasks_app.services.actions import actions_of
from tasks_app.services.creation import Prepared, create_task, validate_task
from tasks_app.states import TERMINAL, Presence
from workspaces_app.access import Actor, Permission
from workspaces_app.rest.paging import page
from workspaces_app.rest.views import ApiView, Empty, Method, answer, declare, not_modified, strong


class Tasks(ApiView):
    """The tasks of your workspaces."""

    methods = declare(
        GET=Method(shapes.TaskPage, query=shapes.TaskQuery),
        POST=Method(shapes.CreatedTask, status=201, body=shapes.NewTask, rate="create", needs=("Idempotency-Key",)),
    )

    def get(self, request: Request) -> Response:
        """List tasks, newest first."""
        asked: shapes.TaskQuery = self.asked
        wanted = {
            "workspace__slug": asked.workspace,
            "status": asked.status or "",
            "presence": asked.presence or "",
            "repository__slug": asked.repository,
            "creator__username": asked.creator,
        }
        rows = Task.objects.visible_to(self.actor.workspaces).select_related(*RELATED)
        found = page(rows.filter(**{name: value for name, value in wanted.items() if value}), asked)
        now = clock.database_now()
        data = tuple(task_record(task, self.actor, now=now) for task in found.rows)
        return answer(shapes.TaskPage(data=data, next_cursor=found.next_cursor))

    def post(self, request: Request) -> Response:
        """Create a task with everything frozen.

        The same `Idempotency-Key` with the same body gives the same task, marked `Idempotency-Replayed: true`.
        """
        key = request.headers.get("Idempotency-Key", "")
        if not key:
            raise Refused("Send an Idempotency-Key, so that repeating is safe.", code="idempotency_key_missing")
        created = create_task(self.actor, task_request(self.actor, self.read(shapes.NewTask)), idempotency_key=key)
        task = visible_task(self.actor, created.task.pk)
        headers = {"Location": f"/api/v1/tasks/{task.pk}"}
        if created.replayed:
            headers["Idempotency-Replayed"] = "true"
        return answer(created_task(task, self.actor, created.warnings), status=201, headers=headers)


class TaskTrial(ApiView):
    """What a task would freeze."""

    methods = declare(POST=Method(shapes.ValidatedTask, body=shapes.NewTask, rate="create"))

    def post(self, request: Request) -> Response:
        """Go the whole way of creation and stop before the row; gaps and problems are the same."""
        prepared = validate_task(self.actor, task_request(self.actor, self.read(shapes.NewTask)))
        return answer(_validated(prepared))


def _validated(prepared: Prepared) -> shapes.ValidatedTask:
    columns = prepared.columns
    return shapes.ValidatedTask(
        title=columns["title"],
        base_commit=columns["base_commit"],
        base_ref=columns["base_ref"],
        task_branch=columns["task_branch"],
        flow_version=flow_reference(columns["flow_version"]),
        policy_revision=columns["policy_revision"].number,
        capability_digest=columns["capability_digest"],
        capabilities=columns["capabilities"],
        warnings=prepared.warnings,
    )


class OneTask(ApiView):
    """One task."""

    methods = declare(
        GET=Method(shapes.TaskRecord),
        PATCH=Method(shapes.TaskRecord, body=shapes.TaskEdit),
        DELETE=Method(shapes.TaskRecord, status=202),
    )

    def get(self, request: Request, task_id: str) -> Response:
        """Read a task."""
        return answer(task_record(visible_task(self.actor, task_id), self.actor))

    def patch(self, request: Request, task_id: str) -> Response:
        """Give a task another title."""
        visible_task(self.actor, task_id, Permission.STEER_TASK)
        naming.rename(task_id, self.read(shapes.TaskEdit).title, actor=self.actor.label)
        return _now(self.actor, task_id, status=200)

    def delete(self, request: Request, task_id: str) -> Response:
        """Remove the task's sandbox for good; the row stays. 200 when that was asked for before."""
        task = visible_task(self.actor, task_id, Permission.DELETE_TASK)
        if task.delete_requested_at is not None or task.presence == Presence.RECLAIMED:
            return _now(self.actor, task_id, status=200)
        retention.delete_task(task_id, actor=self.actor)
        return _now(self.actor, task_id, status=202)


class TaskCancel(ApiView):
    """The end of a task's graph; the sandbox is kept for its window."""

    methods = declare(POST=Method(shapes.TaskRecord, status=202))

    def post(self, request: Request, task_id: str) -> Response:
        """Ask for the end. 200 when that was asked for before or the task is cancelled."""
        task = visible_task(self.actor, task_id, Permission.STEER_TASK)
        if request.data:
            self.read(Empty)
        if task.cancel_requested_at is not None or task.status == "cancelled":
            return _now(self.actor, task_id, status=200)
        if task.status in TERMINAL:
            raise impossible(task, self.actor, f"The task is {task.status} already.", code="already_ended")
        lifecycle.request_cancel(task_id, actor=self.actor.label)
        return _now(self.actor, task_id, status=202)


class TaskFrozen(ApiView):
    """What a task froze."""

    methods = declare(GET=Method(shapes.FrozenTask))

    def get(self, request: Request, task_id: str) -> Response:
        """Read the repository, flow, inputs, capabilities, policy and provider as they were frozen."""
        task = visible_task(self.actor, task_id)
        etag = strong(task.specification_digest)
        if not_modified(request, etag):
            return Response(status=304, headers={"ETag": etag})
        return answer(frozen_task(task), headers={"ETag": etag, "Cache-Control": "private, no-cache"})


def impossible(task: Task, actor: Actor, message: str, *, code: str) -> Conflict:
    """Say that an action is impossible now, and which are possible."""
    allowed = [str(action) for action in actions_of(task, actor, now=clock.database_now())]
    return Conflict(message, code=code, allowed_actions=allowed)


def _now(actor: Actor, task_id: str, *, status: int) -> Response:
    return answer(task_record(visible_task(actor, task_id), actor), status=status)
