"""``manage.py import_flow FILE``: publish a flow file for one workspace or for the whole deployment."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from registry_app.errors import FlowInvalid
from registry_app.flows.problems import counted, told
from registry_app.services.flows import compiled_or_refused, newest_version, publish_flow
from workspaces_app.access import actor_of_user
from workspaces_app.errors import ControlPlaneError
from workspaces_app.models import User, Workspace


class Command(BaseCommand):
    help = "Publish a flow file as the next version of the flow that it names."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file")
        parser.add_argument("--workspace", help="Slug; left out: the whole deployment.")
        parser.add_argument("--user", default="admin", help="Who publishes.")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        workspace = Workspace.objects.filter(slug=options["workspace"]).first() if options["workspace"] else None
        if user is None or (options["workspace"] and workspace is None):
            raise CommandError("There is no such user or workspace.")
        try:
            source = Path(options["file"]).read_text(encoding="utf-8")
            newest = newest_version(compiled_or_refused(source).flow.name, workspace)
            number = newest.number if newest else None
            version = publish_flow(source, workspace=workspace, by=actor_of_user(user), based_on=number)
        except FlowInvalid as error:
            for problem in error.problems:
                self.stderr.write(told(problem, options["file"]))
            raise CommandError(f"{counted(error.problems)}.") from error
        except ControlPlaneError as error:
            raise CommandError(error.message) from error
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{options['file']} cannot be read: {error}.") from error
        self.stdout.write(f"{version} {version.digest}")
