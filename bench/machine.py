"""What a figure was measured on."""

import os
import platform
import sqlite3
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("django", "daphne", "msgspec", "uvicorn", "websockets")


def describe() -> dict[str, Any]:
    """Give machine, versions and the load at this moment; a figure without its load says little."""
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False).stdout.split()
    memory = next(line for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines() if "MemTotal" in line)
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int(memory.split()[1]) // 1024,
        "load": [round(each, 2) for each in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "git": git[-1] if git else None,
        "packages": {name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
