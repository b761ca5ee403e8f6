"""Every branch of the kernel is taken by its tables: what no table reaches is not decided, it is guessed."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TABLES = ("test_kernel_deployment.py", "test_kernel_person.py", "test_kernel_sandbox.py", "test_kernel_supervisor.py")


def test_the_tables_take_every_branch_of_the_kernel(tmp_path):
    data, report = tmp_path / "data", tmp_path / "report.json"
    tables = [str(Path(__file__).parent / name) for name in TABLES]
    coverage = [sys.executable, "-m", "coverage"]
    run = [*coverage, "run", f"--data-file={data}", "--branch", "--source=tasks_app.kernel", "-m", "pytest"]
    quiet = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run([*run, *quiet, *tables], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    subprocess.run(
        [*coverage, "json", f"--data-file={data}", "-o", str(report), "-q"], cwd=ROOT, check=True, timeout=60
    )
    found = json.loads(report.read_text())
    missing = {
        name: (file["missing_lines"], file["missing_branches"])
        for name, file in found["files"].items()
        if file["missing_lines"] or file["missing_branches"]
    }
    assert not missing
    assert found["totals"]["num_branches"] > 100
