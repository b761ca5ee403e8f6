"""Let the database itself refuse changes to rows that are never to change: triggers for SQLite and PostgreSQL.

On SQLite a later migration that alters such a table makes it anew without its triggers: end that migration with the
same operation again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


class Change(StrEnum):
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One trigger. ``columns`` narrows an update to these; ``condition`` (SQL over OLD and NEW) to some rows."""

    table: str
    change: Change
    columns: tuple[str, ...] = ()
    condition: str = ""
    label: str = ""  # tells two refusals of one kind on one table apart

    @property
    def name(self) -> str:
        return "_".join(part for part in (self.table, "refuses", str(self.change), self.label) if part)

    def create_sql(self, vendor: str) -> list[str]:
        """Give the statements that install the trigger. Raises NotImplementedError for another vendor."""
        event = f"{self.change.upper()}{' OF ' + ', '.join(self.columns) if self.columns else ''}"
        when = f"WHEN ({self.condition})" if self.condition else ""
        text = f"{self.table} is immutable: {self.change} refused" + (f" ({self.label})" if self.label else "")
        head = f"CREATE TRIGGER {self.name} BEFORE {event} ON {self.table} FOR EACH ROW {when}"
        if vendor == "sqlite":
            return [f"{head} BEGIN SELECT RAISE(ABORT, '{text}'); END"]
        if vendor == "postgresql":
            body = f"$$ BEGIN RAISE EXCEPTION '{text}' USING ERRCODE = 'integrity_constraint_violation'; END $$"
            return [
                f"CREATE OR REPLACE FUNCTION {self.name}() RETURNS trigger LANGUAGE plpgsql AS {body}",
                f"{head} EXECUTE FUNCTION {self.name}()",
            ]
        raise NotImplementedError(f"no triggers for {vendor}")

    def drop_sql(self, vendor: str) -> list[str]:
        if vendor == "sqlite":
            return [f"DROP TRIGGER IF EXISTS {self.name}"]
        return [f"DROP TRIGGER IF EXISTS {self.name} ON {self.table}", f"DROP FUNCTION IF EXISTS {self.name}()"]


def refuse(refusals: Sequence[Refusal]) -> migrations.RunPython:
    """Give the migration operation that installs the triggers, and takes them away when reversed."""

    def forwards(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
        for refusal in refusals:
            for statement in refusal.drop_sql(schema_editor.connection.vendor):
                schema_editor.execute(statement)
            for statement in refusal.create_sql(schema_editor.connection.vendor):
                schema_editor.execute(statement)

    def backwards(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
        for refusal in refusals:
            for statement in refusal.drop_sql(schema_editor.connection.vendor):
                schema_editor.execute(statement)

    return migrations.RunPython(forwards, backwards)


def whole_table(table: str, *, columns: Sequence[str] = ()) -> tuple[Refusal, Refusal]:
    """Refuse every delete, and every update; with ``columns``, an update of one of these only."""
    return (
        Refusal(table, Change.UPDATE, tuple(columns)),
        Refusal(table, Change.DELETE),
    )
