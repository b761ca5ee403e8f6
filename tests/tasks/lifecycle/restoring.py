"""Take a backup of the test's database as it is, and put it back: really, whatever database that is."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from django.db import connection, connections

from tasks_app.kernel import Standing
from tasks_app.models import Deployment
from tasks_app.services import deployment


class Backup:
    """A copy of a SQLite file by SQLite's own backup; of a PostgreSQL database a database made from it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "backup.sqlite3"
        self.name = str(connection.settings_dict["NAME"])
        if connection.vendor == "sqlite":
            _copy(self.name, str(self.path))
        else:
            self._remake(f"{self.name}_backup", self.name)

    def restore(self) -> None:
        """Put the copy in the place of the database."""
        if connection.vendor == "sqlite":
            connections.close_all()
            _copy(str(self.path), self.name)
        else:
            self._remake(self.name, f"{self.name}_backup")

    def forget(self) -> None:
        if connection.vendor == "postgresql":
            self._elsewhere(f'DROP DATABASE IF EXISTS "{self.name}_backup"')

    def _remake(self, target: str, source: str) -> None:
        self._elsewhere(f'DROP DATABASE IF EXISTS "{target}"', f'CREATE DATABASE "{target}" TEMPLATE "{source}"')

    def _elsewhere(self, *statements: str) -> None:
        import psycopg

        connections.close_all()
        found: dict[str, Any] = connection.get_connection_params() | {"dbname": "postgres"}
        asked = {key: found[key] for key in ("dbname", "host", "port", "user", "password") if found.get(key)}
        with psycopg.connect(**asked, autocommit=True) as server:
            for statement in statements:
                server.execute(statement.encode())


def _copy(source: str, target: str) -> None:
    with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(target)) as there:
        here.backup(there)


def numbers() -> tuple[int | None, int | None]:
    """Give the epoch of the database and the kept one."""
    epochs = deployment.look().epochs
    return tuple(each and each.number for each in (epochs.database, epochs.kept))  # type: ignore[return-value]


def fall_behind(steps: int = 1) -> None:
    """Do to the database's own epoch what a restore does to it."""
    row = Deployment.objects.get(pk=1)
    Deployment.objects.filter(pk=1).update(epoch=row.epoch - steps)


def standing() -> Standing:
    return deployment.look().standing
