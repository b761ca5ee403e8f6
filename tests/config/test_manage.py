"""``manage.py`` as a person meets it who has not started the product yet, or names another state directory."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_database_that_nobody_has_prepared_is_told_in_a_sentence(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "CAISSON_STATE_DIR": str(tmp_path)}
    command = [sys.executable, "manage.py", "sweep"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"{tmp_path}/caisson.sqlite3 is not prepared" in done.stderr
    assert "./caisson up" in done.stderr
    assert "Traceback" not in done.stderr
