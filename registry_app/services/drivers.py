"""Publish drivers."""

from django.db import transaction

from registry_app.models import Driver, DriverVersion
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.spec import DriverEntry
from workspaces_app.access import Actor, Permission, authorise
from workspaces_app.services import audit
from workspaces_app.states import Verb


def publish_driver(entry: DriverEntry, *, description: str, by: Actor) -> DriverVersion:
    """Publish the next version of the driver that the entry names; the same entry again gives the same version."""
    authorise(by, Permission.PUBLISH_REGISTRY)
    return store_driver(entry, description=description, by=by)


def store_driver(entry: DriverEntry, *, description: str, by: Actor) -> DriverVersion:
    """Write the version. The caller has checked who asks."""
    digest = codec.digest(entry)
    with transaction.atomic():
        driver, _ = Driver.objects.get_or_create(name=entry.name, defaults={"description": description})
        there = driver.versions.filter(digest=digest).first()
        if there is not None:
            return there
        newest = driver.versions.order_by("-number").first()
        version = DriverVersion.objects.create(
            driver=driver,
            number=newest.number + 1 if newest else 1,
            canonical=codec.canonical(entry).decode(),
            digest=digest,
        )
        audit.record(
            by, Verb.DRIVER_PUBLISHED, kind="driver_version", object_id=version.pk, after={"driver": str(version)}
        )
    return version
