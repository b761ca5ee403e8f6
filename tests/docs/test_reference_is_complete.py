"""The reference names everything that there is: what is added without its line fails here."""

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from config.commands import dispatch
from config.schedule import BEAT_SCHEDULE
from policy_app.values import NAMES
from sandbox_supervisor.protocol.events import EventKind
from sandbox_supervisor.protocol.states import FailureClass
from tasks_app.states import FailureCode
from tasks_app.timetable import TIMETABLE
from tests.docs.stated_codes import stated

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
STATED = stated()


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def without_line(words: Iterable[str], name: str) -> list[str]:
    """Give the words that begin no row of a table of the page."""
    text = page(name)
    return [word for word in words if f"\n| `{word}` |" not in text]


def test_every_kind_of_event_has_its_line() -> None:
    assert without_line(EventKind, "events.md") == []


def test_every_reason_for_which_a_task_fails_has_its_line() -> None:
    assert without_line(FailureCode, "errors.md") == []


def test_every_class_of_failure_has_its_line() -> None:
    assert without_line(FailureClass, "errors.md") == []


def test_the_code_states_many_codes() -> None:
    known = {"merge_conflict", "exit_code", "yaml_tag", "yaml_empty", "node_kind", "remote_auth", "push_declined"}
    assert known | {"task_unknown", "attempt_timeout", "max_tokens", "not_found", "key_used"} <= STATED.keys()
    assert len(STATED) > 300


def test_every_code_is_explained() -> None:
    text = page("errors.md") + page("flow-problems.md")
    missing = {code: sorted(modules) for code, modules in STATED.items() if f"`{code}`" not in text}
    assert missing == {}


def test_every_value_of_the_policy_has_its_line() -> None:
    first_cells = re.findall(r"^\| (`[^|]*) \|", page("policy.md"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(first_cells))) == set(NAMES)


def test_every_entry_of_beat_has_its_line_with_period_and_reason() -> None:
    text = page("jobs.md")
    assert {f"sweep-{name}" for name in TIMETABLE} == BEAT_SCHEDULE.keys()
    for name, entry in TIMETABLE.items():
        assert f"| `sweep-{name}` | {entry.period.total_seconds():.0f} s | {entry.reason} |" in text


def test_every_job_has_its_line() -> None:
    from config.celery import app
    from tasks_app import jobs

    ours = {name for name, job in app.tasks.items() if job.__module__ == jobs.__name__}
    assert ours
    assert without_line(sorted(ours), "jobs.md") == []


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in dispatch._parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def test_every_command_and_each_of_its_options_has_a_place() -> None:
    found = dict(commands())
    assert {"up", "run", "demo"} <= found.keys()
    for name, parser in found.items():
        line = "".join(re.findall(rf"^\| `{name}[ `].*$", page("commands.md"), re.MULTILINE))
        assert line, name
        options = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
        assert not [option for option in options if option != "--help" and option not in line], name


def routes(resolver: Any, prefix: str = "") -> Iterator[str]:
    for entry in resolver.url_patterns:
        path = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry, path)
        elif isinstance(entry, URLPattern):
            yield re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path)


def test_every_route_of_the_api_has_its_line() -> None:
    ours = {path.removeprefix("api/v1") for path in routes(get_resolver()) if path.startswith("api/v1/")}
    assert len(ours) > 30
    listed = set(re.findall(r"^\| `(/[^`]*)` \|", page("api.md"), re.MULTILINE))
    assert listed == ours


def anchors(of: Path) -> set[str]:
    """Give the names by which the headings of a page are linked to."""
    prose = re.sub(r"^```.*?^```", "", of.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    to = page.parent / path if path else page
    return to.exists() and (not anchor or anchor in anchors(to))


def test_no_link_of_the_documentation_leads_nowhere() -> None:
    root = REFERENCE.parents[1]
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "bench").glob("*.md")]
    broken = [
        f"{one.relative_to(root)}: {target}"
        for one in pages
        for target in re.findall(r"\]\(([^)\s]+)\)", one.read_text(encoding="utf-8"))
        if "://" not in target and not leads_somewhere(one, target)
    ]
    assert not broken
