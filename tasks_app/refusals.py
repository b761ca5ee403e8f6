"""What the database refuses about a task: frozen columns, and the two moments that are set once."""

from collections.abc import Sequence

from tasks_app.models.task import FROZEN
from workspaces_app.immutability import Change, Refusal

TASK = "tasks_app_task"
SET_ONCE = ("first_terminal_at", "retain_until")


def _changed(columns: Sequence[str]) -> str:
    return " OR ".join(f"((OLD.{c} IS NULL) <> (NEW.{c} IS NULL) OR OLD.{c} <> NEW.{c})" for c in columns)


def _unset_or_changed(columns: Sequence[str]) -> str:
    return " OR ".join(f"(OLD.{c} IS NOT NULL AND (NEW.{c} IS NULL OR NEW.{c} <> OLD.{c}))" for c in columns)


REFUSALS = (
    Refusal(TASK, Change.UPDATE, FROZEN, _changed(FROZEN), label="frozen"),
    Refusal(TASK, Change.UPDATE, SET_ONCE, _unset_or_changed(SET_ONCE), label="deadline"),
)
