"""Turn ``DATABASE_URL`` into Django's setting, with what each database needs to be safe."""

from pathlib import Path
from typing import Any

import environ

from config.env import EnvironmentProblem
from config.state import DATABASE

SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",  # a reader that would become a writer waits instead of failing
    "timeout": 20,  # seconds until "database is locked"
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
}


def database(url: str, state: Path) -> dict[str, Any]:
    """Give the ``DATABASES`` entry of ``url``; empty means SQLite in ``state``. Raises EnvironmentProblem."""
    if not url:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": state / DATABASE,
            "OPTIONS": dict(SQLITE_OPTIONS),
        }
    try:
        settings = dict(environ.Env.db_url_config(url))
    except ValueError as error:
        raise EnvironmentProblem(f"DATABASE_URL: {error}.") from None
    if settings.get("NAME") in {None, "", ":memory:"}:
        raise EnvironmentProblem("DATABASE_URL must name a database that all processes share.")
    if settings["ENGINE"] == "django.db.backends.sqlite3":
        settings["OPTIONS"] = dict(SQLITE_OPTIONS)
    else:
        settings.setdefault("CONN_HEALTH_CHECKS", True)
    return settings
