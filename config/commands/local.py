"""The product of this state directory, from inside: its rows, its image, a token for the command line."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from config.commands import product
from config.commands.processes import Layout

CLIENT_LABEL = "command line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """A running local product: whether this call started it, and what a client needs."""

    started: bool
    url: str
    token: str


def bring_up(layout: Layout) -> Local:
    """Make sure that the product runs, its database is current and its sandbox image is built. Raises ProductProblem.

    Does little when it is up already. Progress goes to standard error.
    """
    load_django(layout)
    started = False
    if product.running(layout) is None:
        say("preparing the sandbox image")
        build_image(layout)
        say("preparing the database")
        prepare_database()
        say("starting Redis, web, worker and beat")
        started = product.start(layout)
    return Local(started=started, url=layout.url, token=client_token(layout))


def load_django(layout: Layout) -> None:
    """Set Django up for this state directory; a second call changes nothing."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ.setdefault("CAISSON_LOG_LEVEL", "warning")
    if str(layout.checkout) not in sys.path:
        sys.path.insert(0, str(layout.checkout))
    django.setup()


def build_image(layout: Layout) -> str:
    """Build the sandbox image of this checkout if it is not there, make it the current one and give its digest."""
    from sandbox_providers.local.images import ensure_image

    digest = ensure_image(layout.state)
    current = layout.state / "images" / "current"
    draft = current.with_suffix(f".{os.getpid()}")
    draft.write_text(digest + "\n", encoding="ascii")
    draft.replace(current)
    return digest


def prepare_database() -> None:
    """Migrate, and add the first workspace, admin, policy revision and shipped flows; what is there stays."""
    from django.core.management import call_command

    from policy_app.services.seed import ensure_first_revision
    from registry_app.services.seed import ensure_shipped
    from workspaces_app.services.bootstrap import ensure_workspace_and_admin

    call_command("migrate", interactive=False, verbosity=0)
    ensure_workspace_and_admin()
    ensure_first_revision()
    ensure_shipped()


def sign_in_link(layout: Layout) -> str:
    """Make a one-time link for the first admin."""
    from tasks_app.services.clock import database_now
    from workspaces_app.services import audit, sign_in_links
    from workspaces_app.services.bootstrap import ensure_workspace_and_admin

    admin = ensure_workspace_and_admin().admin
    key = sign_in_links.create(user=admin, by=audit.SYSTEM, now=database_now())
    return f"{layout.url}/sign-in/{key}"


def client_token(layout: Layout) -> str:
    """Give the command line's own API token, kept with mode 0600; a new one when it is missing or no longer valid."""
    from tasks_app.services.clock import database_now
    from workspaces_app.errors import Unauthenticated
    from workspaces_app.services import tokens

    kept = layout.state / "secrets" / "client_token"
    now = database_now()
    try:
        text = kept.read_text(encoding="ascii").strip()
        tokens.recognise(text, address="127.0.0.1", now=now)
    except (FileNotFoundError, Unauthenticated):
        text = _new_token(kept)
    return text


def _new_token(kept: Path) -> str:
    from tasks_app.services.clock import database_now
    from workspaces_app.services import audit, tokens
    from workspaces_app.services.bootstrap import ensure_workspace_and_admin
    from workspaces_app.states import Scope

    membership = ensure_workspace_and_admin().membership
    made = tokens.create(
        membership=membership, label=CLIENT_LABEL, scopes=tuple(Scope), by=audit.SYSTEM, now=database_now()
    )
    draft = kept.with_name(f".client_token.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(made.text + "\n")
    draft.replace(kept)
    return made.text


_began = time.monotonic()


def say(words: str) -> None:
    """Tell the person what is going on, on standard error, with the seconds since the command began."""
    sys.stderr.write(f"{time.monotonic() - _began:6.1f} s  {words}\n")
    sys.stderr.flush()
