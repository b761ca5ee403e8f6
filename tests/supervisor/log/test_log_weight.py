"""The supervisor must start fast and stay small: its log and its graph bring nothing heavy."""

import subprocess
import sys
from pathlib import Path

HEAVY = ("pydantic", "jsonschema", "jinja2", "django", "acp", "mcp", "httpx", "starlette", "cryptography", "yaml")

SCRIPT = """
import sys
from sandbox_supervisor.graph import kernel
from sandbox_supervisor.log import Log
print(*sorted({name.partition('.')[0] for name in sys.modules}))
"""


def test_graph_and_log_import_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=90, cwd=Path.cwd()
    )
    assert not set(HEAVY) & set(done.stdout.split())


def test_the_kernel_reaches_for_no_clock_no_file_and_no_socket():
    folder = Path("sandbox_supervisor/graph")
    imported = {
        line.split()[1].partition(".")[0]
        for path in folder.glob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
    assert imported <= {
        "collections",
        "dataclasses",
        "datetime",
        "enum",
        "hashlib",
        "math",
        "sandbox_supervisor",
        "typing",
    }
