"""What the tools start ends with its time, and its last words are heard."""

import os
import sys
import time
from pathlib import Path

import pytest

from sandbox_supervisor.toolbox.processes import TAIL, Deadline, run

pytestmark = pytest.mark.timeout(60)


def done(*argv: str, seconds: float = 30.0):
    return run(argv, cwd=Path("/"), env=os.environ, deadline=Deadline.after(seconds))


def test_a_program_that_writes_without_end_is_ended_in_time():
    began = time.monotonic()
    found = done("yes", seconds=0.5)
    assert found.code is None
    assert len(found.tail) == TAIL
    assert time.monotonic() - began < 50


def test_a_silent_program_is_ended_in_time():
    assert done("sleep", "600", seconds=0.3).code is None


def test_the_last_words_of_a_quick_program_are_not_lost():
    for number in range(40):
        assert done("echo", f"word {number}").last_line == f"word {number}"


def test_a_daemon_that_goes_on_writing_is_not_waited_for_and_ends_with_it():
    script = "import os, sys\nif os.fork(): os._exit(3)\nwhile True: os.write(1, b'x' * 65536)\n"
    assert done(sys.executable, "-c", script).code == 3


def test_a_program_that_is_not_there_is_named():
    found = done("no-such-program-at-all")
    assert (found.code, found.last_line) == (127, "no-such-program-at-all: No such file or directory")
