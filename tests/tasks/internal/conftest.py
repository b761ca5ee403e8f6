"""A task and its sandbox's client."""

from tests.task_fixtures import _without_old_counters, house, sandbox, task  # noqa: F401
