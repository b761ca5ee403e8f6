"""``manage.py explain_task ID``: the story of one task from all tables."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tasks_app.errors import NotVisible
from tasks_app.services import story


class Command(BaseCommand):
    help = "Tell what happened to a task, from all tables, and what would be said about it now."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", help="Its id.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            lines = story.explain(options["task"])
        except NotVisible as error:
            raise CommandError(error.message) from None
        self.stdout.write("\n".join(lines))
