"""Columns that hold one word of a closed vocabulary: choices for forms and a check constraint for the database."""

from enum import StrEnum
from functools import partial
from typing import Any

from django.db import models
from django.db.models import Q

from workspaces_app import ids

new_task_id = partial(ids.new_id, "tsk")
new_delivery_id = partial(ids.new_id, "dlv")
new_archive_id = partial(ids.new_id, "arc")


def word_field(words: type[StrEnum], *, default: StrEnum | str, **options: Any) -> "models.CharField[str, str]":
    """Make a text column for the words of ``words``; add ``one_of`` to the constraints of the model."""
    choices = [(word.value, word.value.replace("_", " ")) for word in words]
    return models.CharField(max_length=32, choices=choices, default=default, **options)


def one_of(field: str, words: type[StrEnum], *, name: str, blank: bool = False) -> models.CheckConstraint:
    """Refuse every other word; ``blank`` allows the empty text as well."""
    allowed = [word.value for word in words] + ([""] if blank else [])
    return models.CheckConstraint(condition=Q(**{f"{field}__in": allowed}), name=name)


def id_field(prefix_maker: Any) -> "models.CharField[str, str]":
    return models.CharField(primary_key=True, max_length=ids.MAX_LENGTH, default=prefix_maker, editable=False)
