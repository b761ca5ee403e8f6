"""A supervisor must stay small; this is what its server and its client to the control plane cost."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
MIB = 1024 * 1024
PROGRAM = """
import sys
from pathlib import Path
import sandbox_supervisor.control, sandbox_supervisor.server.serve
import uvicorn.protocols.websockets.websockets_sansio_impl
print(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
print(*sorted(name.partition(".")[0] for name in sys.modules))
"""


def report() -> tuple[int, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    size, modules = done.stdout.splitlines()
    return int(size), set(modules.split())


def test_server_and_client_leave_a_third_of_the_supervisors_memory_to_the_rest():
    size, _ = report()
    assert size < 43 * MIB


def test_neither_loads_what_belongs_to_other_processes():
    _, modules = report()
    assert modules.isdisjoint({"django", "celery", "httpx", "jinja2", "jsonschema", "acp", "mcp", "yaml", "pydantic"})
