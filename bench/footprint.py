"""How long a supervisor takes to be ready, and what it holds resident when it is idle.

``python -m bench.footprint [--rounds 5]`` prints one JSON object. A supervisor is started as the product starts it in a
sandbox, but without launcher and control plane (``supervise --standalone --stay``), on a graph that waits for a person.
The peer in the same run: a bare Python process that has imported asyncio and sqlite3 and waits.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import machine
from registry_app import demo_project
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Approval, Flow, Node, NodeKind
from sandbox_supervisor.protocol.spec import Repository, TaskInfo, TaskSpecification

ROOT = Path(__file__).resolve().parents[1]
IDLE = 5.0  # seconds of rest before memory is read
PATIENCE = 60.0
PEER = "import asyncio, sqlite3; print('ready', flush=True); asyncio.run(asyncio.sleep(600))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="caisson-bench-") as folder:
        project = demo_project.create(Path(folder) / "project")
        ours = [_supervisor(Path(folder) / str(number), project.repository) for number in range(rounds)]
    peer = [_measure([sys.executable, "-P", "-c", PEER], lambda line: line == "ready") for _ in range(rounds)]
    result = {
        "benchmark": "footprint",
        "machine": machine.describe(),
        "rounds": rounds,
        "supervisor": _spread(ours),
        "bare_python": _spread(peer),
        "promise": {"start_s": 0.5, "idle_mib": 64},
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


def _supervisor(folder: Path, repository: Path) -> dict[str, float]:
    folder.mkdir(mode=0o700)
    spec = folder / "spec.json"
    spec.write_bytes(codec.canonical(_specification(repository)))
    command = [sys.executable, "-P", "-m", "sandbox_supervisor", "supervise", "--standalone", "--stay",
               "--isolation", "none", "--spec", str(spec), "--folder", str(folder)]  # fmt: skip
    _run_once([*command[:-6], "--isolation", "none", "--spec", str(spec), "--folder", str(folder)])
    return _measure(command, bool)


def _run_once(command: list[str]) -> None:
    """Clone and make the log, which belong to materialisation and not to a start."""
    _measure(command, lambda line: "needs_input" in line, idle=0.0)


def _measure(command: list[str], is_ready: Callable[[str], bool], *, idle: float = IDLE) -> dict[str, float]:
    """Start a process, wait for the line that says it is ready, let it rest, and read what it holds."""
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if is_ready(line.strip()):
                break
        started = time.monotonic() - began
        time.sleep(idle)
        return {"start_s": round(started, 3), "idle_mib": round(_resident(process.pid), 1)}
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def _specification(repository: Path) -> TaskSpecification:
    head = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    wait = Node(key="wait", kind=NodeKind.APPROVAL, approval=Approval(question="Go on?"))
    return TaskSpecification(
        task=TaskInfo(id="tsk_bench", title="Bench", brief="", creator="bench", workspace="bench"),
        repository=Repository(
            slug="bench",
            clone_url=str(repository),
            base_commit=head.stdout.strip(),
            base_ref="refs/heads/main",
            task_branch="caisson/bench",
        ),
        flow=Flow(name="bench", nodes=(wait,)),
        nonce="bench",
    )


def _spread(found: list[dict[str, float]]) -> dict[str, Any]:
    return {
        name: {"median": statistics.median(values), "most": max(values)}
        for name in ("start_s", "idle_mib")
        for values in [[each[name] for each in found]]
    }


if __name__ == "__main__":
    main()
