"""The web process, served by Daphne as the product does."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_it_ends_when_told_although_a_request_still_waits(tmp_path):
    """Such a request waits in a thread for a loop that has ended: nobody would ever wake it, and Python would wait."""
    environment = {"PATH": os.environ["PATH"], "CAISSON_STATE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = [sys.executable, "-m", "daphne", "--fd", str(listener.fileno())]
        served = subprocess.Popen(
            [*program, "tests.fixtures.waiting_asgi:application"],
            cwd=ROOT,
            env=environment,
            pass_fds=[listener.fileno()],
            stdout=subprocess.PIPE,
        )
        with served, socket.create_connection(listener.getsockname()) as browser:
            try:
                browser.sendall(b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert served.stdout is not None
                assert served.stdout.readline() == b"asked\n"
                served.send_signal(signal.SIGTERM)
                assert served.wait(timeout=60) == 0
            finally:
                served.kill()
