"""Every route of the project, for every kind of actor: who is nobody, who sees nothing, who may not, who may.

A route that is added without a row here fails ``test_every_route_is_in_the_table``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tasks_app.models import Task
from tasks_app.services import clock
from tests.api.clients import Api
from tests.task_rows import House, make_delivery, make_house, make_task, policy
from workspaces_app.models import ApiToken
from workspaces_app.services import audit, tokens
from workspaces_app.states import Role, Scope

pytestmark = pytest.mark.django_db

ACTORS = ("anonymous", "foreign", "viewer", "operator", "maintainer", "admin")
ALLOWED = "ok"  # anything that is neither a refusal nor a defect: also 409 or 422 for a reason of the object's own

Cells = tuple[str, str, str, str, str, str]


def from_role(role: Role, *, anonymous: str = "401") -> Cells:
    """An object of the workspace: foreign actors do not see it, members need at least ``role``."""
    members = ["403" if Role(actor).rank < role.rank else ALLOWED for actor in ACTORS[2:]]
    return (anonymous, "404", *members)  # type: ignore[return-value]  # four members


EVERYBODY: Cells = (ALLOWED,) * 6
SIGNED_IN: Cells = ("401", *(ALLOWED,) * 5)
STAFF: Cells = ("401", *("404",) * 5)
SANDBOXES: Cells = ("401",) * 6  # no person has a task token
VIEW, STEER = from_role(Role.VIEWER), from_role(Role.OPERATOR)
DELETE = from_role(Role.MAINTAINER)  # of a task that the admin created
PAGE, ACT = from_role(Role.VIEWER, anonymous="302"), from_role(Role.OPERATOR, anonymous="302")
PAGES: Cells = ("302", *(ALLOWED,) * 5)


@dataclass(frozen=True)
class Row:
    cells: Cells
    body: Mapping[str, object] | None = None
    query: str = ""
    form: str = ""


NEW_TASK = {"workspace": "main", "repository": "project", "flow": "work", "title": "x"}
NEW_REPOSITORY = {"workspace": "main", "slug": "x", "clone_url": "/x"}
NEW_TOKEN = {"workspace": "main", "label": "x", "scopes": ["read"]}
FLOW = {"workspace": "main", "source": "name: x"}
TASK, ATTEMPT = "api/v1/tasks/<str:task_id>", "api/v1/tasks/<str:task_id>/attempts/<str:attempt_id>"

TABLE: dict[tuple[str, str], Row] = {
    ("GET", "livez"): Row(EVERYBODY),
    ("GET", "readyz"): Row(EVERYBODY),
    # the console
    ("GET", "sign-in"): Row(EVERYBODY),
    ("GET", "sign-in/<str:key>"): Row(EVERYBODY),
    ("POST", "sign-out"): Row(EVERYBODY),
    ("GET", ""): Row(PAGES),
    ("GET", "tasks/<str:task_id>"): Row(PAGE),
    ("POST", "tasks/<str:task_id>/answer/<str:request_id>"): Row(ACT),
    ("POST", "tasks/<str:task_id>/command"): Row(ACT, form="verb=rerun&node=work"),
    ("POST", "tasks/<str:task_id>/cancel"): Row(ACT),
    ("POST", "tasks/<str:task_id>/delete"): Row(from_role(Role.MAINTAINER, anonymous="302")),
    # who, where, with what
    ("GET", "api/v1/me"): Row(SIGNED_IN),
    ("GET", "api/v1/meta"): Row(SIGNED_IN),
    ("GET", "api/v1/schema"): Row(EVERYBODY),
    ("GET", "api/v1/schemas/<str:name>"): Row(SIGNED_IN),
    ("GET", "api/v1/repositories"): Row(VIEW, query="workspace=main"),
    ("POST", "api/v1/repositories"): Row(from_role(Role.ADMIN), NEW_REPOSITORY),
    ("GET", "api/v1/repositories/<str:repository_id>"): Row(VIEW),
    ("GET", "api/v1/tokens"): Row(VIEW, query="workspace=main"),
    ("POST", "api/v1/tokens"): Row(VIEW, NEW_TOKEN),
    ("DELETE", "api/v1/tokens/<str:key_id>"): Row(("401", "404", "403", "403", "403", ALLOWED)),
    ("GET", "api/v1/policy"): Row(STAFF),
    ("GET", "api/v1/policy/revisions"): Row(STAFF),
    ("GET", "api/v1/policy/revisions/<int:number>"): Row(STAFF),
    ("GET", "api/v1/policy/revisions/<int:number>/diff"): Row(STAFF),
    ("GET", "api/v1/flows"): Row(VIEW, query="workspace=main"),
    ("POST", "api/v1/flows"): Row(from_role(Role.MAINTAINER), FLOW),
    ("POST", "api/v1/flows:compile"): Row(from_role(Role.MAINTAINER), FLOW),
    ("GET", "api/v1/flows/versions/<str:version_id>"): Row(VIEW),
    # tasks
    ("GET", "api/v1/tasks"): Row(SIGNED_IN),
    ("POST", "api/v1/tasks"): Row(STEER, NEW_TASK),
    ("POST", "api/v1/tasks:validate"): Row(STEER, NEW_TASK),
    ("GET", TASK): Row(VIEW),
    ("PATCH", TASK): Row(STEER, {"title": "x"}),
    ("DELETE", TASK): Row(DELETE),
    ("POST", f"{TASK}/cancel"): Row(STEER),
    ("GET", f"{TASK}/frozen"): Row(VIEW),
    ("GET", f"{TASK}/events"): Row(VIEW),
    ("GET", f"{TASK}/snapshot"): Row(VIEW),
    ("GET", f"{TASK}/archive"): Row(VIEW),
    ("GET", f"{TASK}/archive/<str:digest>"): Row(VIEW),
    ("GET", f"{TASK}/deliveries"): Row(VIEW),
    ("GET", f"{TASK}/deliveries/<str:delivery_id>"): Row(VIEW),
    ("GET", f"{TASK}/deliveries/<str:delivery_id>/patch"): Row(VIEW),
    ("GET", f"{TASK}/graph"): Row(VIEW),
    ("GET", f"{TASK}/stream"): Row(VIEW),
    ("POST", f"{TASK}/commands"): Row(STEER, {"verb": "pause"}),
    ("GET", f"{TASK}/nodes/<str:key>"): Row(VIEW),
    ("GET", ATTEMPT): Row(VIEW),
    ("GET", f"{ATTEMPT}/log"): Row(VIEW),
    ("GET", f"{ATTEMPT}/files"): Row(VIEW),
    ("GET", f"{ATTEMPT}/files/content"): Row(VIEW, query="path=a.txt"),
    ("GET", f"{ATTEMPT}/diff"): Row(VIEW),
    ("GET", f"{ATTEMPT}/artefacts"): Row(VIEW),
    ("GET", f"{ATTEMPT}/artefacts/<str:digest>"): Row(VIEW),
    # what sandboxes call
    ("POST", "internal/v1/heartbeat"): Row(SANDBOXES),
    ("GET", "internal/v1/spec"): Row(SANDBOXES),
    ("PUT", "internal/v1/^artefacts/(?P<digest>[0-9a-f]{64})$"): Row(SANDBOXES),
    ("POST", "internal/v1/deliveries"): Row(SANDBOXES),
    ("GET", "internal/v1/deliveries/<str:delivery_id>"): Row(SANDBOXES),
    ("PUT", "internal/v1/deliveries/<str:delivery_id>/bundle"): Row(SANDBOXES),
    ("PUT", "internal/v1/archive/<str:kind>"): Row(SANDBOXES),
}


def routes(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for part in resolver.url_patterns:
        text = prefix + str(part.pattern)
        if isinstance(part, URLPattern):
            yield text
        else:
            yield from routes(part, text)


def test_every_route_is_in_the_table_and_nothing_else():
    there = {route for route in routes(get_resolver()) if not route.startswith("admin/")}
    assert there == {route for _, route in TABLE}


def test_every_method_of_the_api_is_in_the_table():
    from drf_spectacular.generators import SchemaGenerator

    described = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    told = {(method.upper(), path) for path, item in described.items() for method in item if method != "parameters"}
    plain = {
        (method, "/" + route.replace("<str:", "{").replace("<int:", "{").replace(">", "}")) for method, route in TABLE
    }
    assert told <= plain


@dataclass(frozen=True)
class World:
    """A house with everything that a path can name, and a stranger who has the same at home."""

    house: House
    foreign: House
    task: Task
    values: dict[str, str]


@pytest.fixture
def world(db: None) -> World:
    house, foreign = make_house(), make_house("other")
    policy()
    task = make_task(house, creator=Role.ADMIN)
    delivery = make_delivery(task, patch=b"patch")
    other = ApiToken.objects.get(pk=_token(house))
    values = {
        "<str:task_id>": task.pk,
        "<str:delivery_id>": delivery.pk,
        "<str:digest>": delivery.facts["patch"]["digest"],
        "<str:attempt_id>": "work.1.1",
        "<str:key>": "work",
        "<str:request_id>": "req-1",
        "<str:repository_id>": house.repository.pk,
        "<str:key_id>": other.pk,
        "<str:version_id>": house.flow_version.pk,
        "<str:name>": "flow.v1.json",
        "<str:kind>": "snapshot",
        "<int:number>": "1",
        "^artefacts/(?P<digest>[0-9a-f]{64})$": f"artefacts/{'a' * 64}",
    }
    return World(house=house, foreign=foreign, task=task, values=values)


def _token(house: House) -> str:
    """A token of a fifth member, who is none of the actors."""
    from workspaces_app.models import Membership, User

    user = User.objects.create(username="fifth")
    member = Membership.objects.create(workspace=house.workspace, user=user, role=Role.VIEWER)
    made = tokens.create(membership=member, label="x", scopes=[Scope.READ], by=audit.SYSTEM, now=clock.database_now())
    return made.token.pk


def client_of(actor: str, world: World) -> Api:
    if actor == "anonymous":
        return Api.anonymous()
    house, role = (world.foreign, Role.ADMIN) if actor == "foreign" else (world.house, Role(actor))
    return Api.of_user(house.user(role))


def path_of(route: str, row: Row, world: World) -> str:
    for name, value in world.values.items():
        route = route.replace(name, value)
    assert "<" not in route
    return f"/{route}?{row.query}" if row.query else f"/{route}"


def sent(api: Api, method: str, path: str, row: Row, *, key: str):
    if row.form:
        kind = "application/x-www-form-urlencoded"
        return api.client.generic(method, path, row.form.encode(), content_type=kind, headers=api.headers)
    return api.call(method, path, row.body, idempotency_key=key)


@pytest.mark.parametrize(("method", "route"), TABLE, ids=[f"{method} {route}" for method, route in TABLE])
def test_each_actor_gets_what_the_table_says(world, method, route):
    row = TABLE[(method, route)]
    got = []
    for actor in ACTORS:
        with transaction.atomic():
            response = sent(client_of(actor, world), method, path_of(route, row, world), row, key=f"{actor}-key")
            transaction.set_rollback(True)
        assert response.status_code < 500 or response.status_code == 503, (actor, response.content)
        refused = response.status_code in {401, 403, 404} or _leads_to_sign_in(response)
        got.append(str(response.status_code) if refused else ALLOWED)
        if actor == "foreign" and response.status_code == 200 and not response.streaming:
            assert world.task.pk not in response.content.decode()
        if response.streaming:
            b"".join(response.streaming_content)
    assert tuple(got) == _own_reasons(method, route, row.cells)


def _leads_to_sign_in(response: Any) -> bool:
    asked = str(response.wsgi_request.path)
    return response.status_code == 302 and str(response["Location"]).startswith("/sign-in") and asked != "/sign-out"


def _own_reasons(method: str, route: str, cells: Cells) -> Cells:
    """A member who may look finds out that there is no snapshot: 404 for a reason of the object's own."""
    if (method, route) == ("GET", f"{TASK}/snapshot"):
        return tuple("404" if cell == ALLOWED else cell for cell in cells)  # type: ignore[return-value]
    return cells


def test_the_admin_site_lets_nobody_in_who_is_not_staff(world):
    clients = {actor: client_of(actor, world).client for actor in ACTORS}
    for route in routes(get_resolver()):
        if not route.startswith("admin/") or route in {"admin/login/", "admin/logout/"}:
            continue
        path = re.sub(r"<[^>]+>", "1", "/" + route.replace("(?P<url>.*)$", "x").replace("^", ""))
        for actor, client in clients.items():
            response = client.get(path)
            assert response.status_code in {302, 403, 404}, (route, actor)
            if response.status_code == 302:
                assert "/admin/login/" in response["Location"], (route, actor)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_token_never_opens_a_page(world, method):
    made = tokens.create(
        membership=world.house.members[Role.ADMIN],
        label="x",
        scopes=list(Scope),
        by=audit.SYSTEM,
        now=clock.database_now(),
    )
    client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {made.text}"})
    response = client.generic(method, f"/tasks/{world.task.pk}" + ("/cancel" if method == "POST" else ""))
    assert response.status_code == 302
