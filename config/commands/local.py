"""The product of this state directory, from inside: its rows, its image, a token for the command line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from config.commands import code, product
from config.commands.processes import Layout
from config.commands.product import ProductProblem
from config.commands.terminal import say

if TYPE_CHECKING:
    from django.db.migrations.loader import MigrationLoader

CLIENT_LABEL = "command line"
OTHER_CODE = (
    "the product still runs the code that it was started from, not what this checkout holds now; "
    "to change over: ./caisson stop, then ./caisson up (sandboxes go on)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """A running local product: whether this call started it, and what a client needs."""

    started: bool
    url: str
    token: str


def bring_up(layout: Layout) -> Local:
    """Make sure that the product runs, its database is current and its sandbox image is built. Raises ProductProblem.

    Does little when it is up already; that it runs older code is told. Of two callers at once one prepares and starts,
    the other waits for it.
    """
    load_django(layout)
    with product.alone(layout):
        product.await_end(layout)
        found = product.running(layout)
        if found is None:
            product.require_free(layout.port)
            _prepare(layout)
            say("starting Redis, web, worker and beat")
            product.start(layout)
        elif found.code != code.fingerprint(layout.checkout):
            _accept_other_code()
    port = found.port if found else layout.port
    return Local(started=found is None, url=f"http://localhost:{port}", token=client_token(layout))


def _prepare(layout: Layout) -> None:
    from django.db import Error

    from sandbox_providers.contract import ProviderError

    try:
        say("preparing the sandbox image")
        build_image(layout)
        say("preparing the database")
        prepare_database()
        drop_old_images(layout)
    except ProviderError as error:
        raise ProductProblem(error.message) from None
    except Error as error:
        raise ProductProblem(f"the database cannot be used: {error}. Its place: {database_place()}.") from None


def _accept_other_code() -> None:
    """Tell that the running product is of other code; raise ProductProblem when its database is, too."""
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()) or _of_newer_version(executor.loader):
        raise ProductProblem(
            "the product that runs here, and its database, are of another version than this checkout. "
            "Stop it, then run this command again: ./caisson stop (sandboxes go on)"
        )
    say(f"note: {OTHER_CODE}")


def database_place() -> str:
    """Name the database: the path of a SQLite file, else host and name."""
    from django.conf import settings

    found = settings.DATABASES["default"]
    return ":".join(str(found[key]) for key in ("HOST", "NAME") if found.get(key))


def database_exists(layout: Layout) -> bool:
    """Say whether a start may have made the database; looking for a SQLite file makes none."""
    load_django(layout)
    path = sqlite_file()
    return path is None or Path(path).exists()


def safe_mode(layout: Layout) -> str:
    """Say why nothing is removed or delivered; empty when the database is trusted. Raises ProductProblem."""
    from django.db import Error

    load_django(layout)
    from tasks_app.services import deployment

    try:
        return deployment.look().words
    except Error as error:
        raise ProductProblem(
            f"the database cannot be used: {error}. Its place: {database_place()}. ./caisson up prepares it."
        ) from None


def sqlite_file() -> str | None:
    """Give the path of the SQLite file; None when the database is another one."""
    from django.db import connection

    return str(connection.settings_dict["NAME"]) if connection.vendor == "sqlite" else None


def load_django(layout: Layout) -> None:
    """Set Django up for this state directory, quietly; a second call changes nothing."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if str(layout.checkout) not in sys.path:
        sys.path.insert(0, str(layout.checkout))
    with _quiet():
        django.setup()


@contextmanager
def _quiet() -> Iterator[None]:
    """Log warnings only, unless told otherwise; what is started later must not inherit that."""
    if os.environ.get("CAISSON_LOG_LEVEL") or os.environ.get("CAISSON_LOG_LEVEL_FILE"):
        yield
        return
    os.environ["CAISSON_LOG_LEVEL"] = "warning"
    try:
        yield
    finally:
        del os.environ["CAISSON_LOG_LEVEL"]


def build_image(layout: Layout) -> str:
    """Build the sandbox image of this checkout if it is not there, make it the current one and give its digest."""
    from sandbox_providers.local.images import ensure_image

    digest = ensure_image(layout.state)
    current = layout.state / "images" / "current"
    draft = current.with_suffix(f".{os.getpid()}")
    draft.write_text(digest + "\n", encoding="ascii")
    draft.replace(current)
    return digest


def drop_old_images(layout: Layout) -> None:
    """Remove the sandbox images that no task can need any more. Only while the product does not run."""
    from sandbox_providers.local.images import prune_images
    from tasks_app.services.providers import images_wanted

    if removed := prune_images(layout.state, keep=images_wanted()):
        say(f"removed {len(removed)} sandbox images that nothing needs any more")


def prepare_database() -> None:
    """Migrate, and add the first workspace, admin, policy revision and shipped flows; what is there stays.

    Raises ProductProblem for the database of a newer version.
    """
    from django.core.management import call_command

    from policy_app.services.seed import ensure_first_revision
    from registry_app.services.seed import ensure_shipped
    from tasks_app.services import deployment
    from workspaces_app.services.bootstrap import ensure_workspace_and_admin

    _refuse_newer()
    call_command("migrate", interactive=False, verbosity=0)
    ensure_workspace_and_admin()
    ensure_first_revision()
    ensure_shipped()
    deployment.advance()


def _refuse_newer() -> None:
    from django.db import connection
    from django.db.migrations.loader import MigrationLoader

    if newer := _of_newer_version(MigrationLoader(connection)):
        raise ProductProblem(
            f"the database is that of a newer Caisson: this version does not know {', '.join(newer)}. Use the newer "
            f"version, another CAISSON_STATE_DIR, or a back-up from before the upgrade. Its place: {database_place()}."
        )


def _of_newer_version(loader: "MigrationLoader") -> list[str]:
    unknown = {f"{app}.{name}" for app, name in loader.applied_migrations.keys() - loader.disk_migrations.keys()}
    return sorted(name for name in unknown if name.partition(".")[0].endswith("_app"))


def sign_in_link(url: str) -> str:
    """Make a one-time link to the console at ``url`` for the first admin."""
    from tasks_app.services.clock import database_now
    from workspaces_app.services import audit, sign_in_links
    from workspaces_app.services.bootstrap import ensure_workspace_and_admin

    admin = ensure_workspace_and_admin().admin
    key = sign_in_links.create(user=admin, by=audit.SYSTEM, now=database_now())
    return f"{url}/sign-in/{key}"


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
