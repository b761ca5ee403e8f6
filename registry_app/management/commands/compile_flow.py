"""``manage.py compile_flow FILE``: say everything that is wrong with a flow file, or what its worst case is."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from registry_app.flows.compiler import compile_flow
from registry_app.flows.problems import counted, told


class Command(BaseCommand):
    help = "Compile a flow file; every problem is printed as file:line:column, code, message, hint."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own spelling

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="Path of the flow file, or - for standard input.")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["file"]
        try:
            source = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        except OSError as error:
            raise CommandError(f"{name} cannot be read: {error.strerror}.") from error
        outcome = compile_flow(source)
        if isinstance(outcome, list):
            for problem in outcome:
                self.stderr.write(told(problem, name))
            raise CommandError(f"{counted(outcome)}.")
        case = outcome.worst_case
        self.stdout.write(f"{outcome.flow.name} {outcome.digest}")
        self.stdout.write(f"at most {case.total_attempts} attempts, {case.longest_path:.0f} s on the longest path")
