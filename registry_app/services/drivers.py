"""Publish drivers: immutable versions of what the registry knows about a coding agent's program."""

import re
from collections.abc import Iterator, Mapping

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from registry_app.errors import DriverInvalid
from registry_app.models import Driver, DriverVersion
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.spec import DriverEntry, DriverProtocol
from workspaces_app.access import Actor, Permission, authorise
from workspaces_app.errors import Conflict
from workspaces_app.models import SLUG
from workspaces_app.services import audit
from workspaces_app.states import Verb

SHIPPED = frozenset({"scripted"})  # names that belong to the product
MAX_WORDS = 100
MAX_TEXT = 16 * 1024  # characters of the command and the environment together
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
_OF_THE_ATTEMPT = frozenset({"HOME", "TMPDIR"})


def publish_driver(entry: DriverEntry, *, description: str, by: Actor) -> DriverVersion:
    """Publish the next version of the driver that the entry names; an entry that is there gives the version it has.

    Raises DriverInvalid with everything that is wrong, and Conflict for an entry that was withdrawn or when another
    publication came in between.
    """
    authorise(by, Permission.PUBLISH_REGISTRY)
    problems = list(_problems(entry, description))
    if problems:
        raise DriverInvalid(problems)
    try:
        version = store_driver(entry, description=description, by=by)
    except IntegrityError:
        raise Conflict(
            f"Another version of {entry.name!r} was published at the same moment.", code="driver_moved"
        ) from None
    if version.yanked_at is not None:
        raise Conflict(f"The entry is {version}, which was withdrawn: {version.yanked_because}", code="driver_yanked")
    return version


def store_driver(entry: DriverEntry, *, description: str, by: Actor) -> DriverVersion:
    """Write the version. The caller has checked who asks; raises IntegrityError when the number is taken."""
    digest = codec.digest(entry)
    with transaction.atomic():
        driver, _ = Driver.objects.get_or_create(name=entry.name, defaults={"description": description})
        if description and driver.description != description:
            Driver.objects.filter(pk=driver.pk).update(description=description)
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


def _problems(entry: DriverEntry, description: str) -> Iterator[str]:
    """Name what no sandbox could use, and what would change the product's own drivers."""
    try:
        SLUG(entry.name)
    except ValidationError as error:
        yield f"The name {entry.name[:80]!r} is not allowed: {error.message}"
    if entry.name in SHIPPED or entry.protocol is not DriverProtocol.ACP:
        yield f"The driver {entry.name[:80]!r} comes with the product, or plays as only that one does."
    if not entry.command or not entry.command[0]:
        yield "The command is missing: the program that speaks the Agent Client Protocol, and its arguments."
    if len(entry.command) > MAX_WORDS:
        yield f"The command has more than {MAX_WORDS} words."
    texts = [*entry.command, *entry.env.values()]
    if any("\0" in text or not _encodable(text) for text in texts) or sum(map(len, texts)) > MAX_TEXT:
        yield f"The command and the environment hold a NUL, no UTF-8, or more than {MAX_TEXT} characters."
    yield from _bad_variables(entry.env)
    if entry.memory_reserve < 0:
        yield "The memory reserve is not negative."
    if len(description) > 500:
        yield "The description has at most 500 characters."


def _bad_variables(env: Mapping[str, str]) -> Iterator[str]:
    for name in env:
        if not _VARIABLE.match(name):
            yield f"{name[:80]!r} is not the name of an environment variable."
        elif name.startswith("CAISSON_") or name in _OF_THE_ATTEMPT:
            yield f"{name} is set by the attempt itself."


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
