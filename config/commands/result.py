"""What ``--json`` promises: one object, always with the same members, as the last line of standard output.

Standard library only: set-up that fails owes it, too.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

MEMBERS = (
    *("task", "status", "flow", "repository", "remote", "base_commit", "branch", "commit", "change_request"),
    *("nodes", "attempts", "max_parallel", "rework_rounds", "events", "first_node_s", "total_s"),
    *("presence", "retain_until", "console_url", "database"),
)


def wanted(arguments: Sequence[str]) -> bool:
    """Say whether a command line asks for the object, however wrong it is otherwise."""
    return arguments[0] in {"run", "demo"} and "--json" in arguments


def nothing() -> dict[str, Any]:
    """Give the object of a command of which nothing is known yet: every member is null."""
    return dict.fromkeys(MEMBERS)


def tell(result: dict[str, Any]) -> None:
    """Print the object."""
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
