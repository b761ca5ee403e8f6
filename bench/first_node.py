"""From ``POST /tasks`` to the start of the task's first node, on the running product.

``python -m bench.first_node [--rounds 5]`` prints one JSON object. Beside it, in the same run: how long the bare start
of the same Python with the same supervisor code takes, which no sandbox can undercut.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

from bench import machine
from bench.product import ROOT, Product, product

FLOW = """
apiVersion: caisson/v1
kind: Flow
name: bench-first-node
nodes:
  - key: first
    command: {argv: ["true"]}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with product() as running:
        flow = running.publish(FLOW)
        found = [_one(running, flow, number) for number in range(rounds)]
    bare = [_bare_start() for _ in range(rounds)]
    result = {
        "benchmark": "first_node",
        "machine": machine.describe(),
        "rounds": rounds,
        **{name: _spread([each[name] for each in found]) for name in found[0]},
        "bare_start_of_the_supervisor_s": _spread(bare),
        "first_node_to_bare_start": round(
            statistics.median(each["first_node_s"] for each in found) / statistics.median(bare), 1
        ),
        "promise_s": 2.0,
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


def _one(running: Product, flow: str, number: int) -> dict[str, float]:
    """Time one task, and delete it. Both clocks are this machine's."""
    sent = datetime.now(UTC)
    task = running.create(flow, f"Measure {number}")
    answered = datetime.now(UTC)
    started = datetime.fromisoformat(str(running.graph_when(task["id"], "first_node_at")["first_node_at"]))
    running.ended(task["id"])
    ready = datetime.fromisoformat(running.client.get(f"/tasks/{task['id']}")["running_at"])
    running.delete(task["id"])
    moments = {"post_s": answered, "running_s": ready, "first_node_s": started}
    return {name: (moment - sent).total_seconds() for name, moment in moments.items()}


def _bare_start() -> float:
    began = time.monotonic()
    program = "import sandbox_supervisor.supervise, sandbox_supervisor.server.serve"
    subprocess.run([sys.executable, "-P", "-c", program], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=True)
    return time.monotonic() - began


def _spread(values: list[float]) -> dict[str, Any]:
    ordered = sorted(round(value, 3) for value in values)
    return {"median": statistics.median(ordered), "least": ordered[0], "most": ordered[-1]}


if __name__ == "__main__":
    main()
