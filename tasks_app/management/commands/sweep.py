"""``manage.py sweep NAME``: run one sweep now."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tasks_app.errors import Refused
from tasks_app.services import sweeps
from tasks_app.timetable import TIMETABLE


class Command(BaseCommand):
    help = "Run one sweep now, or list them with their age."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="Which sweep; left out: list them.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["name"] is None:
            for age in sweeps.ages():
                entry = TIMETABLE[age.name]
                last = age.finished_at.isoformat(timespec="seconds") if age.finished_at else "never"
                period = f"every {entry.period.total_seconds():g} s"
                self.stdout.write(
                    f"{age.name:10} {period:12} last {last}{' (late)' if age.late else ''}: {entry.reason}"
                )
            return
        try:
            sweeps.run(options["name"])
        except Refused as error:
            raise CommandError(error.message) from None
