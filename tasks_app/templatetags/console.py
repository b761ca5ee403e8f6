"""Tags and filters that the console's templates share."""

import json
from datetime import datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from sandbox_supervisor.protocol.messages import RequestView
from tasks_app.web import plain, vocabulary
from tasks_app.web.questions import Field, fields_of
from tasks_app.web.times import duration, moment
from tasks_app.web.vocabulary import Sign

register = template.Library()
register.filter("duration", duration)
register.filter("moment", moment)


@register.simple_tag
def glyph(name: str, css: str = "") -> SafeString:
    """Draw a glyph of the sprite; it is decoration, the word stands beside it."""
    return format_html(
        '<svg class="g{}" aria-hidden="true" focusable="false"><use href="#g-{}"></use></svg>',
        f" {css}" if css else "",
        name,
    )


SIGNS = {
    "task": vocabulary.TASK,
    "node": vocabulary.NODE,
    "attempt": vocabulary.ATTEMPT,
    "presence": vocabulary.PRESENCE,
    "health": vocabulary.HEALTH,
    "delivery": vocabulary.DELIVERY,
}


@register.filter
def sign(state: str, of: str) -> Sign:
    """Give word, glyph and tone of a state of a task, node, attempt, presence, health or delivery."""
    return SIGNS[of].get(state, vocabulary.UNKNOWN)


@register.filter
def short(commit: str | None) -> str:
    """Give the first seven characters of a commit id."""
    return (commit or "")[:7]


@register.filter
def size(value: int | None) -> str:
    """Write a number of bytes as ``812 B``, ``3.1 KiB`` or ``4.0 MiB``."""
    amount = float(value or 0)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


@register.filter
def since(label: str | datetime | None, now: datetime) -> str:
    """Say how long ago something was, in the words that the page's clock goes on with."""
    began = moment(label)
    return duration(now - began) if began else ""


@register.filter
def until(label: str | datetime | None, now: datetime) -> str:
    """Say how long is left, ``0:00`` when nothing is."""
    end = moment(label)
    return duration(end - now) if end else ""


@register.filter
def visible(text: Any) -> str:
    """Write what a stranger wrote so that nothing in it works on the reader: no escape, no turn of direction."""
    return plain.visible(str(text if text is not None else ""))


@register.filter
def attempt_word(state: str) -> str:
    return sign(state, "attempt").word


@register.filter
def pretty_json(value: Any) -> str:
    return plain.visible(json.dumps(value, indent=2, ensure_ascii=False)[:20_000])


@register.filter
def answer_words(answer: Any) -> str:
    """Say an answer in a few words: the option that was chosen, or what was filled in."""
    if isinstance(answer, dict):
        for name in ("option", "content"):
            if name in answer:
                return answer_words(answer[name])
        return "declined" if answer.get("declined") else visible(", ".join(f"{k}: {answer[k]}" for k in answer)[:200])
    return visible(str(answer)[:200])


@register.filter
def question_fields(request: RequestView) -> list[Field]:
    return fields_of(request.schema)
