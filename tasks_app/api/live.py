"""What only the supervisor knows: asked at this moment, never stored; after it is gone, the final snapshot answers."""

import re
from dataclasses import dataclass
from typing import ClassVar

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from sandbox_supervisor.protocol.messages import (
    AttemptView,
    Command,
    CommandOutcome,
    CommandVerb,
    NodeView,
    RequestView,
    Snapshot,
)
from tasks_app.api import shapes
from tasks_app.api.gates import visible_task
from tasks_app.api.kept import BYTES, UNTRUSTED, download
from tasks_app.api.tasks import impossible
from tasks_app.errors import NotVisible, Refused
from tasks_app.live import dial
from tasks_app.models import Task
from tasks_app.services import archive, clock
from tasks_app.services.actions import Action, actions_of
from workspaces_app.access import Permission
from workspaces_app.ids import new_id
from workspaces_app.rest.views import ApiView, Method, answer, declare

PASSED_ON = ("Content-Range", "Accept-Ranges", "ETag", "X-Caisson-Dropped-Bytes")
ASKED_WITH = ("Range", "If-Range", "If-None-Match")
JSON = "application/json"
DISPOSITION = re.compile(r"attachment; filename\*=UTF-8''[A-Za-z0-9%._~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDetail:
    """A node with its attempts and the questions it asked."""

    node: NodeView
    attempts: tuple[AttemptView, ...]
    requests: tuple[RequestView, ...]


def _picture(task: Task) -> tuple[Snapshot, str]:
    """Give the graph and where it was read: ``live``, or ``snapshot`` when no supervisor will ever answer again."""
    try:
        return dial.get_snapshot(dial.upstream_of(task)), "live"
    except (dial.NoSandbox, dial.Reclaimed):
        if not task.snapshots.exists():
            raise
        return archive.final_snapshot(task), "snapshot"


class TaskGraph(ApiView):
    """The graph of a task."""

    methods = declare(GET=Method(Snapshot))

    def get(self, request: Request, task_id: str) -> Response:
        """Read the graph from the supervisor, or from the final snapshot (`Caisson-Source` says which)."""
        picture, source = _picture(visible_task(self.actor, task_id))
        return answer(picture, headers={"Caisson-Source": source})


class TaskStream(ApiView):
    """The events of a task's supervisor."""

    methods = declare(GET=Method(shapes.StreamPage, query=shapes.StreamQuery))

    def get(self, request: Request, task_id: str) -> Response:
        """Wait for events after `epoch:seq` and give a page of them: gap-free, in order."""
        asked: shapes.StreamQuery = self.asked
        named = {"node": asked.node, "attempt": asked.attempt, "kind": asked.kind}
        only = {name: value for name, value in named.items() if value}
        upstream = dial.upstream_of(visible_task(self.actor, task_id))
        return answer(dial.get_events(upstream, after=asked.after, limit=asked.limit, wait=asked.wait, only=only))


class TaskNode(ApiView):
    """One node of a task's graph."""

    methods = declare(GET=Method(NodeDetail))

    def get(self, request: Request, task_id: str, key: str) -> Response:
        """Read a node with its attempts and questions."""
        picture, source = _picture(visible_task(self.actor, task_id))
        node = next((each for each in picture.nodes if each.key == key), None)
        if node is None:
            raise NotVisible("The graph has no such node.", code="node_unknown")
        detail = NodeDetail(
            node=node,
            attempts=tuple(each for each in picture.attempts if each.node == key),
            requests=tuple(each for each in picture.requests if each.node == key),
        )
        return answer(detail, headers={"Caisson-Source": source})


class TaskAttempt(ApiView):
    """One attempt."""

    methods = declare(GET=Method(AttemptView))

    def get(self, request: Request, task_id: str, attempt_id: str) -> Response:
        """Read an attempt: its state, commits, result, failure, usage and artefacts."""
        picture, source = _picture(visible_task(self.actor, task_id))
        return answer(_attempt(picture, attempt_id), headers={"Caisson-Source": source})


def _attempt(picture: Snapshot, attempt_id: str) -> AttemptView:
    found = next((each for each in picture.attempts if each.id == attempt_id), None)
    if found is None:
        raise NotVisible("The graph has no such attempt.", code="attempt_unknown")
    return found


class _AttemptPart(ApiView):
    """Something that an attempt left, handed on from its supervisor byte for byte."""

    methods = declare(GET=Method(None, media_type=BYTES))
    part: ClassVar[str]

    def get(self, request: Request, task_id: str, attempt_id: str) -> HttpResponseBase:
        """Read it from the supervisor. `Range`, `If-Range` and `If-None-Match` are passed on."""
        return self._handed_on(visible_task(self.actor, task_id), attempt_id, self.part)

    def _handed_on(self, task: Task, attempt_id: str, part: str) -> HttpResponseBase:
        given = {name: self.request.headers.get(name, "") for name in ASKED_WITH}
        headers = {name: value for name, value in given.items() if value.isascii() and value.isprintable() and value}
        query = {name: str(value) for name, value in self.request.query_params.items() if value}
        return _attachment(dial.get_attempt(dial.upstream_of(task), attempt_id, part, query=query, headers=headers))


def _attachment(found: dial.Fetched) -> HttpResponse:
    """Hand on what a supervisor gave. What a browser does with it is never left to the sandbox to say."""
    media_type = JSON if found.headers.get("content-type", "").partition(";")[0].strip() == JSON else BYTES
    named = found.headers.get("content-disposition", "")
    response = HttpResponse(found.body, status=found.status, content_type=media_type)
    response["Content-Disposition"] = named if DISPOSITION.fullmatch(named) else "attachment"
    response["Content-Security-Policy"] = UNTRUSTED
    response["X-Content-Type-Options"] = "nosniff"
    for name in PASSED_ON:
        if name.lower() in found.headers:
            response[name] = found.headers[name.lower()]
    return response


class AttemptLog(_AttemptPart):
    """The output of an attempt."""

    methods = declare(GET=Method(None, media_type=BYTES, query=shapes.LogQuery))
    part = "log"


class AttemptFiles(_AttemptPart):
    """The files of an attempt's tree."""

    methods = declare(GET=Method(None, media_type=BYTES, query=shapes.FilesQuery))
    part = "files"


class AttemptFile(_AttemptPart):
    """The content of one file of an attempt's tree."""

    methods = declare(GET=Method(None, media_type=BYTES, query=shapes.FileQuery))
    part = "files/content"


class AttemptDiff(_AttemptPart):
    """What an attempt changed."""

    part = "diff"


class AttemptArtefacts(_AttemptPart):
    """The artefacts of an attempt."""

    part = "artefacts"

    def get(self, request: Request, task_id: str, attempt_id: str) -> HttpResponseBase:
        """List them; after reclamation as the final snapshot names them."""
        task = visible_task(self.actor, task_id)
        try:
            return self._handed_on(task, attempt_id, self.part)
        except (dial.NoSandbox, dial.Reclaimed):
            picture, source = _picture(task)
            artefacts = _attempt(picture, attempt_id).artefacts
            return answer(artefacts, headers={"Caisson-Source": source})


class AttemptArtefact(_AttemptPart):
    """One artefact of an attempt."""

    part = "artefacts"

    def get(  # type: ignore[override]  # one more part of the path
        self, request: Request, task_id: str, attempt_id: str, digest: str
    ) -> HttpResponseBase:
        """Download it; from the archive when the sandbox is gone."""
        task = visible_task(self.actor, task_id)
        try:
            return self._handed_on(task, attempt_id, f"{self.part}/{digest}")
        except (dial.NoSandbox, dial.Reclaimed):
            return download(request, task, digest if ":" in digest else f"sha256:{digest}")


NEEDS: dict[CommandVerb, tuple[str, ...]] = {
    CommandVerb.RERUN: ("nodes",),
    CommandVerb.REWORK: ("node", "feedback"),
    CommandVerb.ANSWER: ("request",),
    CommandVerb.MESSAGE: ("attempt", "text"),
    CommandVerb.CANCEL_ATTEMPT: ("attempt",),
}


class TaskCommands(ApiView):
    """A person's commands to a task's supervisor."""

    methods = declare(POST=Method(CommandOutcome, status=202, body=shapes.NewCommand, headers=("Idempotency-Key",)))

    def post(self, request: Request, task_id: str) -> Response:
        """Rerun, rework, answer, message, pause, resume, cancel an attempt. The same key gives the first outcome."""
        task = visible_task(self.actor, task_id, Permission.STEER_TASK)
        asked = self.read(shapes.NewCommand)
        missing = [name for name in NEEDS.get(asked.verb, ()) if not getattr(asked, name)]
        if missing:
            raise Refused(
                f"{asked.verb} needs {' and '.join(missing)}.", code="command_incomplete", pointer=f"/{missing[0]}"
            )
        if _action(asked.verb) not in actions_of(task, self.actor, now=clock.database_now()):
            dial.upstream_of(task)  # says better why, when there is no supervisor
            raise impossible(task, self.actor, f"{asked.verb} is not possible now.", code="not_possible_now")
        return answer(dial.post_command(dial.upstream_of(task), self._command(request, asked)), status=202)

    def _command(self, request: Request, asked: shapes.NewCommand) -> Command:
        """The key is the member's own: another's with the same text is another command."""
        key = request.headers.get("Idempotency-Key", "") or new_id("cmd")
        if len(key) > 200 or not key.isprintable():
            raise Refused("Idempotency-Key is 1 to 200 printable characters.", code="idempotency_key_malformed")
        return Command(
            id=f"{self.actor.user_id}:{key}",
            verb=asked.verb,
            actor=self.actor.label,
            nodes=asked.nodes,
            run_stale=asked.run_stale,
            node=asked.node,
            feedback=asked.feedback,
            attempt=asked.attempt,
            request=asked.request,
            answer=asked.answer,
            text=asked.text,
            mode=asked.mode,
        )


def _action(verb: CommandVerb) -> Action:
    return Action(str(verb))
