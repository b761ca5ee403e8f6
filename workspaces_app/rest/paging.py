"""Give long lists page by page: an opaque cursor that names the last row shown."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from msgspec import Meta

from workspaces_app.rest.shapes import InvalidInput

MARK = "1:"  # of the format

M = TypeVar("M", bound=Model)

Limit = Annotated[int, Meta(ge=1, le=200, description="How many rows at most.")]
Cursor = Annotated[str, Meta(max_length=200, description="`next_cursor` of the page before.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    limit: Limit = 50
    cursor: Cursor = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    rows: list[M]
    next_cursor: str | None


def page(rows: QuerySet[M], query: PageQuery, *, newest_first: bool = True) -> Page[M]:
    """Give one page ordered by primary key. Raises InvalidInput for a cursor that was not made here."""
    if query.cursor:
        after = _decode(rows, query.cursor)
        rows = rows.filter(**{"pk__lt" if newest_first else "pk__gt": after})
    found = list(rows.order_by("-pk" if newest_first else "pk")[: query.limit + 1])
    shown = found[: query.limit]
    more = len(found) > query.limit
    return Page(shown, _encode(str(shown[-1].pk)) if more else None)


def _encode(key: str) -> str:
    return urlsafe_b64encode(f"{MARK}{key}".encode()).decode().rstrip("=")


def _decode(rows: QuerySet[Any], cursor: str) -> Any:
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        key = rows.model._meta.pk.to_python(text.removeprefix(MARK)) if text.startswith(MARK) else None
    except (ValueError, ValidationError):  # whatever was sent, it is no cursor of ours
        key = None
    if key is None:
        raise InvalidInput(
            "This is no cursor of this list.",
            errors=[{"parameter": "cursor", "code": "invalid", "detail": "Send `next_cursor` as it was given."}],
        )
    return key
