"""Turn ``DATABASE_URL`` into Django's setting, with what each database needs to be safe."""

from pathlib import Path
from typing import Any

import environ

from config.env import EnvironmentProblem

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
            "NAME": state / "caisson.sqlite3",
            "OPTIONS": dict(SQLITE_OPTIONS),
        }
    settings = dict(environ.Env.db_url_config(url))
    engine = settings.get("ENGINE")
    if engine == "django.db.backends.sqlite3":
        settings["OPTIONS"] = dict(SQLITE_OPTIONS)
    elif engine == "django.db.backends.postgresql":
        settings.setdefault("CONN_HEALTH_CHECKS", True)
    else:
        raise EnvironmentProblem("DATABASE_URL must begin with postgres:// or sqlite:///.")
    return settings
