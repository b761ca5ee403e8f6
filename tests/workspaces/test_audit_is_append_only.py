import pytest
from django.db import IntegrityError, connection, transaction

from workspaces_app.models import AuditEvent
from workspaces_app.services import audit
from workspaces_app.states import Verb

pytestmark = pytest.mark.django_db


@pytest.fixture
def event():
    return audit.record(audit.SYSTEM, Verb.SIGNED_IN, kind="user", object_id="1")


def refused(action):
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        action()


def test_an_event_cannot_be_changed(event):
    refused(lambda: AuditEvent.objects.update(actor="user:mallory"))


def test_an_event_cannot_be_deleted(event):
    refused(lambda: AuditEvent.objects.all().delete())


def test_raw_sql_is_refused_as_well(event):
    def raw():
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM workspaces_app_auditevent")

    refused(raw)


def test_events_can_be_added(event):
    audit.record(audit.SYSTEM, Verb.SIGNED_IN, kind="user", object_id="2")
    assert AuditEvent.objects.count() == 2
