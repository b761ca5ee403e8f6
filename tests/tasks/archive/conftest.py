"""A task and its sandbox's client."""

from tests.task_fixtures import house, sandbox, task  # noqa: F401
