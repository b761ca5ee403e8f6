"""Journeys are told in order: what a test leaves is what the next one finds."""

from collections.abc import Sequence
from pathlib import Path

import pytest


def in_definition_order(items: list[pytest.Item], folder: Path) -> None:
    """Put the tests of each module in ``folder`` back into the order in which they are written, where they stand."""
    places: dict[Path, list[int]] = {}
    for at, item in enumerate(items):
        if folder in item.path.parents:
            places.setdefault(item.path, []).append(at)
    for taken in places.values():
        _sort(items, taken)


def _sort(items: list[pytest.Item], places: Sequence[int]) -> None:
    told = sorted((items[at] for at in places), key=lambda item: item.reportinfo()[1] or 0)
    for at, item in zip(places, told, strict=True):
        items[at] = item
