"""The committed description of the API is the one that the code gives, and the API answers as it is described."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.conf import settings as django_settings
from django.core import signals
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.db import close_old_connections
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import ignored_auth

from tasks_app.models import TaskEvent
from tasks_app.services import clock
from tests.task_rows import House, make_delivery, make_task, policy
from workspaces_app.models import User
from workspaces_app.services import audit, tokens
from workspaces_app.states import Role, Scope

COMMITTED = Path(django_settings.BASE_DIR) / "docs" / "reference" / "openapi.yaml"
DESCRIBED = SchemaGenerator().get_schema(request=None, public=True)
READS = sorted(path for path, item in DESCRIBED["paths"].items() if "get" in item and not path.endswith("/stream"))
DOWNLOADS = {path for path in READS if path.endswith(("/patch", "/{digest}"))}


def test_the_committed_description_is_the_current_one_and_has_no_warnings(tmp_path):
    """To renew it: ``manage.py spectacular --file docs/reference/openapi.yaml --validate --fail-on-warn``."""
    call_command("spectacular", file=str(tmp_path / "openapi.yaml"), validate=True, fail_on_warn=True)
    assert COMMITTED.read_text() == (tmp_path / "openapi.yaml").read_text()


def test_every_operation_has_a_name_of_its_own_and_says_what_it_does():
    operations = [operation for item in DESCRIBED["paths"].values() for operation in item.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert all(operation["description"] for operation in operations)


def test_every_reference_of_the_description_leads_somewhere():
    schemas = DESCRIBED["components"]["schemas"]

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].rpartition("/")[2] in schemas
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(DESCRIBED)


@pytest.fixture
def known(house: House) -> dict[str, str]:
    """Something to find behind every path, for a member of staff."""
    policy()
    task = make_task(house)
    now = clock.database_now()
    TaskEvent.objects.create(task=task, at=now, kind="task.created", actor="system:test", rev=0)
    delivery = make_delivery(task, patch=b"patch")
    return {
        "task_id": task.pk,
        "delivery_id": delivery.pk,
        "digest": delivery.facts["patch"]["digest"],
        "version_id": house.flow_version.pk,
        "repository_id": house.repository.pk,
        "number": "1",
        "name": "flow.v1.json",
        "attempt_id": "work.1.1",
        "key": "work",
    }


@pytest.fixture
def bearer(house: House) -> dict[str, str]:
    User.objects.filter(pk=house.user(Role.ADMIN).pk).update(is_staff=True)
    made = tokens.create(
        membership=house.members[Role.ADMIN],
        label="x",
        scopes=list(Scope),
        by=audit.SYSTEM,
        now=clock.database_now(),
    )
    return {"Authorization": f"Bearer {made.text}"}


@pytest.fixture
def open_connection() -> Iterator[None]:
    """Keep Django from closing the test's own connection after each request."""
    for signal in (signals.request_started, signals.request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (signals.request_started, signals.request_finished):
        signal.connect(close_old_connections)


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("path", sorted(set(READS) - DOWNLOADS))
def test_reads_answer_as_they_are_described(known, bearer, open_connection, path):
    described = schemathesis.openapi.from_dict(DESCRIBED)
    described.app = WSGIHandler()
    operation = described[path]["GET"]
    found: list[int] = []

    @settings(
        max_examples=5,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    def ask(case: Any) -> None:
        case.path_parameters = {name: known.get(name, "x") for name in case.path_parameters or {}}
        case.query.pop("cursor", None)  # opaque: no made-up one is a cursor
        response = case.call(headers=bearer)
        found.append(response.status_code)
        case.validate_response(response, excluded_checks=[ignored_auth, not_a_server_error])

    try:
        ask()
    except FailureGroup as group:  # pragma: no cover - only to say more when it fails
        pytest.fail("\n".join(str(failure) for failure in group.exceptions))
    assert all(status < 500 or status == 503 for status in found)  # 503: there is no supervisor to ask


@pytest.mark.django_db
def test_lists_and_records_are_really_found_by_the_reads_above(known, bearer, client):
    for path in READS:
        if "attempts" in path or path.endswith(("/graph", "/snapshot", "/nodes/{key}")):
            continue  # these need a supervisor or a snapshot
        response = client.get(path.format(**known), headers=bearer)
        assert response.status_code == 200, path
        if response.streaming:
            b"".join(response.streaming_content)
