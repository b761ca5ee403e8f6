"""The bar of nodes that the task list shows: one letter per node, in the cache for a while, never in the database."""

from collections.abc import Iterable

from django.core.cache import cache

LIFE = 24 * 3600  # seconds; a heartbeat renews it, a list without it shows "not known"


def remember(task_id: str, bar: str) -> None:
    """Keep the bar of the newest heartbeat. A cache that is away loses it, and nothing else."""
    cache.set(_key(task_id), bar, LIFE)


def of(task_ids: Iterable[str]) -> dict[str, str]:
    """Give the bars that are known, by task id."""
    keys = {_key(task_id): task_id for task_id in task_ids}
    return {keys[key]: bar for key, bar in cache.get_many(keys).items()}


def _key(task_id: str) -> str:
    return f"bar:{task_id}"
