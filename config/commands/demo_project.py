"""The small real project that the demo works on, made as a Git repository with a bare remote."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

BRIEF = """\
Recipes should be usable for another number of servings, and several recipes should give one shopping list. Keep
amounts exact, and add tests for both.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoProject:
    repository: Path
    remote: Path
    brief: str


def create() -> DemoProject:
    """Make a fresh copy below the state directory; every call gives another one, so that demos do not meet."""
    from django.conf import settings

    from registry_app import demo_project

    parent = Path(settings.STATE_DIR) / "demo"
    parent.mkdir(mode=0o700, exist_ok=True)
    made = demo_project.create(Path(tempfile.mkdtemp(prefix="demo-", dir=parent)))
    return DemoProject(repository=made.repository, remote=made.remote, brief=BRIEF)
