"""A real daphne with a database, a Redis and rows of its own, and browsers that speak to it."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Origin

from tests.fixtures.scripted_supervisor import Served
from tests.fixtures.stream_client import PATIENCE

ROOT = Path(__file__).parents[3]
ORIGIN = "http://console.test:8765"


class Clerk:
    """Calls into the process that holds the rows."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lock = threading.Lock()

    def __call__(self, do: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        assert answer, "the clerk has failed; its complaint is on standard error"
        return json.loads(answer)


class Web:
    """The control plane under test."""

    def __init__(self, port: int, clerk: Clerk, pid: int) -> None:
        self.port = port
        self.clerk = clerk
        self.pid = pid

    @property
    def resident(self) -> int:
        """Bytes of memory of the daphne process."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * 4096

    def task(self, served: Served | None = None, *, presence: str = "present", port: int = 0) -> dict[str, str]:
        """Make a task whose supervisor is ``served``, or will be on ``port``."""
        endpoint = None
        if served is not None:
            endpoint = {"host": "127.0.0.1", "port": port or served.port, "fingerprint": served.fingerprint}
        made: dict[str, str] = self.clerk("new_task", endpoint=endpoint, presence=presence)
        return made

    @asynccontextmanager
    async def console(self, task: str, *, cookie: str = "", origin: str | None = ORIGIN, **options: Any):
        """Open a console socket as a browser does."""
        headers = {"Cookie": cookie} if cookie else {}
        options.setdefault("subprotocols", ["console.v1"])
        options.setdefault("open_timeout", PATIENCE)  # of the first, daphne itself is still starting
        async with connect(
            f"ws://127.0.0.1:{self.port}/ws/v1/tasks/{task}/console",
            origin=Origin(origin) if origin is not None else None,
            additional_headers=headers,
            proxy=None,
            max_size=None,
            close_timeout=1,
            **options,
        ) as socket:
            yield socket


@contextmanager
def running(argv: list[str], environment: dict[str, str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(argv, cwd=ROOT, env=environment, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture(scope="session")
def web(redis_server: Path) -> Iterator[Web]:
    state = Path(tempfile.mkdtemp(prefix="caisson-live-"))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("CAISSON_", "DJANGO_"))},
        "CAISSON_STATE_DIR": str(state),
        "CAISSON_ORIGINS": ORIGIN,
        "CAISSON_LOG_LEVEL": "error",
        "REDIS_URL": f"unix://{redis_server}",
        "DATABASE_URL": "",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
    }
    python = sys.executable
    try:
        subprocess.run([python, "manage.py", "migrate", "-v", "0"], cwd=ROOT, env=environment, check=True, timeout=120)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            number = listener.fileno()
            daphne = [python, "-m", "daphne", "-v", "0", "--fd", str(number), "tests.tasks.live.fast_asgi:application"]
            clerk = [python, "tests/tasks/live/clerk.py"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            with (
                running(clerk, environment, **pipes) as rows,
                running(daphne, environment, pass_fds=[number]) as server,
            ):
                yield Web(listener.getsockname()[1], Clerk(rows), server.pid)
    finally:
        shutil.rmtree(state, ignore_errors=True)


@pytest.fixture
def viewer(web: Web) -> str:
    """The session cookie of a member who may watch."""
    return str(web.clerk("sign_in", workspace="main", role="viewer")["cookie"])
