"""``manage.py create_token``: make an API token for a member and print it once."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from workspaces_app.errors import ControlPlaneError
from workspaces_app.models import Membership
from workspaces_app.services import audit, tokens
from workspaces_app.states import Scope


class Command(BaseCommand):
    help = "Make an API token for a member of a workspace; it is printed once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", default="admin")
        parser.add_argument("--workspace", default="main", help="Slug of the workspace.")
        parser.add_argument("--label", default="command line")
        parser.add_argument(
            "--scope", action="append", choices=[str(scope) for scope in Scope], help="Repeatable; default: all."
        )
        parser.add_argument("--days", type=int, default=tokens.DEFAULT_LIFE.days)
        parser.add_argument("--cidr", action="append", default=[])

    def handle(self, *args: Any, **options: Any) -> None:
        membership = Membership.objects.filter(
            user__username=options["user"], workspace__slug=options["workspace"]
        ).first()
        if membership is None:
            raise CommandError(f"{options['user']} is no member of the workspace {options['workspace']}.")
        try:
            made = tokens.create(
                membership=membership,
                label=options["label"],
                scopes=[Scope(scope) for scope in options["scope"] or Scope],
                by=audit.SYSTEM,
                now=timezone.now(),
                life=timedelta(days=options["days"]),
                cidrs=options["cidr"],
            )
        except ControlPlaneError as error:
            raise CommandError(error.message) from error
        self.stdout.write(made.text)
