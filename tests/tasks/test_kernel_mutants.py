"""The kernel's tables notice nearly every small mistake: what they do not notice, they do not decide."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tasks import kernel_mutants
from tests.tasks.test_kernel_coverage import TABLES

MODULES = ("deployment", "person", "sandbox", "supervisor", "decision")
SCORE = 0.9


def survives(folder: Path) -> bool:
    """Run the tables over the kernel in ``folder``."""
    tables = [f"tests/tasks/{name}" for name in TABLES]
    quiet = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "tests.tasks.kernel_mutants"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, *tables],
        cwd=kernel_mutants.ROOT,
        env=os.environ | {"MUTANT": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in {0, 1, 2}, done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode == 0


def test_the_kernel_as_it_is_passes_its_own_tables_as_a_mutant_would(tmp_path):
    right = kernel_mutants.Mutant("right", (kernel_mutants.KERNEL / "person.py").read_text())
    assert survives(kernel_mutants.overlay(tmp_path / "m", "person", right))


def test_a_wrong_kernel_is_noticed(tmp_path):
    wrong = next(kernel_mutants.mutants("person"))
    assert not survives(kernel_mutants.overlay(tmp_path / "m", "person", wrong))


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("module", MODULES)
def test_the_tables_notice_nine_of_ten_mistakes(tmp_path, module):
    found = list(kernel_mutants.mutants(module))
    unnoticed = [each.words for each in found if survives(kernel_mutants.overlay(tmp_path / "m", module, each))]
    assert len(unnoticed) <= (1 - SCORE) * len(found), "\n".join(unnoticed)
