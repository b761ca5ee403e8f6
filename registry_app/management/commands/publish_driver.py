"""``manage.py publish_driver NAME -- PROGRAM ARGUMENT…``: make a coding agent known to flows."""

import re
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from registry_app.services.drivers import publish_driver
from sandbox_supervisor.protocol.spec import DriverEntry, DriverProtocol
from sandbox_supervisor.protocol.units import SIZE_HINT, read_size
from workspaces_app.access import actor_of_user
from workspaces_app.errors import ControlPlaneError
from workspaces_app.models import User

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


class Command(BaseCommand):
    help = "Publish the next version of a driver: an agent's program that speaks the Agent Client Protocol (ACP)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="How flows name it: lower-case letters, digits, inner hyphens.")
        parser.add_argument("--description", default="")
        parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="Repeatable; no secrets.")
        parser.add_argument("--memory", default="0", help="Memory reserve of one agent, such as 512Mi.")
        parser.add_argument("--user", default="admin", help="Who publishes.")
        parser.add_argument("program", nargs="+", help="After --: the program and its arguments, as in the sandbox.")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError("There is no such user.")
        entry = DriverEntry(
            name=options["name"],
            protocol=DriverProtocol.ACP,
            command=tuple(options["program"]),
            env=dict(map(_variable, options["env"])),
            memory_reserve=_size(options["memory"]),
        )
        for name in filter(_SECRET.search, entry.env):
            self.stderr.write(f"{name}: a driver's entry is frozen into tasks and shown; keep real keys out of it.")
        for word, place in _unseen(entry.command):
            self.stderr.write(f"{word} lies below {place}, which an isolated sandbox does not see: install it in /opt.")
        try:
            version = publish_driver(entry, description=options["description"], by=actor_of_user(user))
        except ControlPlaneError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{version} {version.digest}")
        newest = version.driver.versions.usable().first()
        if newest is not None and newest != version:
            self.stderr.write(f"This entry is not new. Without a version flows mean {newest}; this one is {version}.")


def _unseen(words: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Give the words that are paths, as they stand or where links lead, below places that sandboxes do not see."""
    hidden = [Path("/tmp"), Path("/var/tmp")]  # noqa: S108  # a sandbox has its own
    with suppress(RuntimeError):  # a user without a home
        hidden += [home for home in (Path.home(),) if home != Path("/")]
    for word in words:
        paths = {Path(word), Path(word).resolve()} if word.startswith("/") and "\0" not in word else set()
        yield from ((word, place) for place in hidden if any(path.is_relative_to(place) for path in paths))


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CommandError(f"--env {name[:80]!r}: write NAME=VALUE.")
    return name, value


def _size(text: str) -> int:
    try:
        return read_size(text)
    except ValueError as error:
        raise CommandError(f"--memory {text[:80]!r}: {error}; {SIZE_HINT}.") from error
