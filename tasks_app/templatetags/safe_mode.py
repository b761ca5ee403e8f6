"""The banner of safe mode, for every page of somebody who is signed in."""

from typing import Any

from django import template
from django.db import DatabaseError

from tasks_app.services import deployment

register = template.Library()


@register.inclusion_tag("console/parts/safe_mode.html", takes_context=True)
def safe_mode(context: template.Context) -> dict[str, Any]:
    """Say why nothing is removed or delivered; nothing when the database is trusted, or does not answer."""
    user = getattr(context.get("request"), "user", None)  # an error page may come before anybody was recognised
    try:
        words = deployment.look().words if user is not None and user.is_authenticated else ""
    except DatabaseError:  # the page of an error must not fail for its reason
        words = ""
    return {"words": words, "confirm": deployment.CONFIRM}
