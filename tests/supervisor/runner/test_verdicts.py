"""How a tree ended becomes one verdict."""

from typing import Any

import pytest

from sandbox_supervisor.runner.link import SpawnKind
from sandbox_supervisor.runner.verdicts import Ending, empty_session, judge

COMMAND: dict[str, Any] = {"kind": SpawnKind.COMMAND, "stopped": False, "exited": {"code": 0}}
DRIVER: dict[str, Any] = {"kind": SpawnKind.DRIVER, "stopped": False, "exited": {"code": 0}}


@pytest.mark.parametrize(
    ("ending", "verdict"),
    [
        (COMMAND, ("ok", None, None)),
        (COMMAND | {"exited": {"code": 1}}, ("failed", "check_failed", "exit_code")),
        (COMMAND | {"exited": {"code": 127}}, ("failed", "check_failed", "not_found")),
        (COMMAND | {"exited": {"code": 137}}, ("failed", "infra", "killed")),
        (COMMAND | {"exited": {"signal": 9}}, ("failed", "infra", "killed")),
        (COMMAND | {"exited": {"signal": 11}}, ("failed", "check_failed", "signal")),
        (COMMAND | {"exited": {"signal": 64}}, ("failed", "check_failed", "signal")),
        (COMMAND | {"exited": None}, ("failed", "infra", "tree_lost")),
        (COMMAND | {"exited": None, "failed": "no such file"}, ("failed", "infra", "spawn_failed")),
        (COMMAND | {"stopped": True}, ("cancelled", None, "stopped")),
        (COMMAND | {"stopped": True, "exited": None}, ("cancelled", None, "stopped")),
        (DRIVER, ("failed", "infra", "driver_lost")),
        (DRIVER | {"report": {"outcome": "ok"}}, ("ok", None, None)),
        (DRIVER | {"report": {"outcome": "ok"}, "broken": "lies"}, ("failed", "protocol", "driver_host")),
        (DRIVER | {"report": {"outcome": "ok"}, "stopped": True}, ("cancelled", None, "stopped")),
    ],
)
def test_an_ending_has_one_verdict(ending: dict[str, Any], verdict: tuple[Any, ...]):
    found = judge(Ending(**ending))
    assert (found["outcome"], found["failure_class"], found["code"]) == verdict
    assert found["outcome"] == "ok" or found["message"]


def test_a_session_without_a_word_is_the_agents_error():
    found = empty_session(Ending(**DRIVER, report={"outcome": "ok", "quiet": True}))
    assert (found["failure_class"], found["code"]) == ("agent_error", "empty")
