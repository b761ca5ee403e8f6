"""No line of the log holds a key of ours, whoever wrote it and however it came in."""

import io
import logging
import sys

import pytest
import structlog

from config.logging import configure
from workspaces_app import keys

TASK_TOKEN = "cst_tsk_01m8mqrsap4xexty5nd9m67bcn.k1." + "0f" * 32
KEYS = [keys.make("csl").text, keys.make("csn").text, TASK_TOKEN]


@pytest.fixture(params=["json", "console"])
def lines(request, monkeypatch):
    root, sink = logging.getLogger(), io.StringIO()
    before, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stderr", sink)
    configure(level="debug", style=request.param, terminal=False)
    yield sink
    root.handlers[:] = before
    root.setLevel(level)


def fail(key: str) -> None:
    """Log an exception whose words, and whose frame, hold the key."""
    try:
        int(key)
    except ValueError:
        logging.getLogger("y").exception("failed")


@pytest.mark.parametrize("key", KEYS, ids=["sign-in link", "API token", "task token"])
def test_a_key_is_known_by_its_beginning_and_not_shown(lines, key):
    logging.getLogger("django.request").warning("Forbidden: /sign-in/%s", key)
    structlog.get_logger("x").warning("event", header=f"Bearer {key}", nested={"k": [key]})
    fail(key)
    told = lines.getvalue()
    assert key[-12:] not in told
    assert told.count(key[:16]) == told.count("•••") == 4


def test_what_is_no_key_is_shown_as_it_is(lines):
    said = "tsk_01m8mqrsap4xexty5nd9m67bcn css_style.min.abc csv_file.csv cs-01m8mqrsap4xexty5nd9m67bcn-69939c09"
    logging.getLogger("x").warning(said)
    assert said in lines.getvalue()
