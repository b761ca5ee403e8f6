"""The checkout changes under a product that runs: nothing breaks, and it is told how to change over."""

import shutil
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.running_product import ROOT, Product, product
from tests.small_package import requirement

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(600)]

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "tests", "docs", "bench", "staticfiles")
OTHER_CODE = "still runs the code that it was started from"


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    """A checkout of its own; the one package that it requires brings those of this environment in."""
    folder = Path(tempfile.mkdtemp(prefix="caisson-u-"))
    copy = folder / "checkout"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    (copy / "requirements.txt").write_text(requirement(folder, {"small.pth": sysconfig.get_path("purelib") + "\n"}))
    yield copy
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def script(checkout: Path) -> list[str]:
    return [str(Path(sys.executable).resolve()), str(checkout / "caisson")]


@pytest.fixture(scope="module")
def place(checkout: Path, script: list[str]) -> Iterator[Product]:
    with product(checkout.parent / "state", script) as made:
        start(made)
        yield made


def start(place: Product) -> str:
    """Start the product by asking for a task on a repository that is not there; give what was said."""
    said = place.caisson("run", "/nowhere", "x").stderr
    assert "is not a folder" in said
    assert answers(place)
    return said


def answers(place: Product) -> bool:
    return httpx.get(f"{place.url}/livez", timeout=40, trust_env=False).status_code == 200


def add(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_new_pins_wait_until_no_product_of_the_checkout_runs(place, checkout, script):
    add(checkout / "requirements.txt", "# another version\n")
    for state in (place.state, checkout.parent / "another state"):
        done = Product(state, script).caisson("run", "/nowhere", "x")
        assert done.returncode == 1
        assert f"the product of {place.state} (pid " in done.stderr
        assert f"CAISSON_STATE_DIR={place.state} ./caisson stop" in done.stderr
    assert answers(place)
    looked = place.caisson("doctor")
    assert "other code than this checkout holds now" in looked.stdout
    assert place.caisson("stop").returncode == 0
    assert "installing requirements.txt" in start(Product(place.state, [str(checkout / ".venv/bin/python"), script[1]]))
    assert "of this code" in place.caisson("doctor").stdout
    assert OTHER_CODE not in place.caisson("up").stderr


def test_a_product_of_older_code_is_left_alone_and_told(place, checkout):
    add(next((checkout / "templates").rglob("*.html")), "\n")
    done = place.caisson("up")
    assert done.returncode == 0
    assert "was up already" in done.stdout
    assert OTHER_CODE in done.stderr
    assert OTHER_CODE in place.caisson("run", "/nowhere", "x").stderr
    assert place.caisson("stop").returncode == 0
    assert OTHER_CODE not in start(place)


def test_a_product_of_an_older_or_newer_database_is_not_used_until_it_was_stopped(place, checkout):
    migrations = checkout / "workspaces_app" / "migrations"
    last = max(path.stem for path in migrations.glob("0*.py"))
    new = migrations / "0999_new.py"
    new.write_text(
        "from django.db import migrations\n\n\nclass Migration(migrations.Migration):\n"
        f"    dependencies = [('workspaces_app', {last!r})]\n"
    )
    assert "of another version than this checkout" in place.caisson("up").stderr
    assert answers(place)
    assert place.caisson("stop").returncode == 0
    assert "preparing the database" in start(place)
    new.unlink()
    done = place.caisson("up")
    assert done.returncode == 1
    assert "of another version than this checkout" in done.stderr


def test_an_up_that_slept_through_a_restart_by_another_hand_does_not_stop_the_new_product(place):
    place.caisson("stop")
    shutil.rmtree(place.state)
    with place.begin("up") as sleeper:
        try:
            assert sleeper.stdout is not None
            while "sandboxes stay" not in (line := sleeper.stdout.readline()):
                assert line, "up has ended before it was there"
            sleeper.send_signal(signal.SIGSTOP)
            assert place.caisson("stop").returncode == 0
            start(place)
            sleeper.send_signal(signal.SIGCONT)
            assert sleeper.wait(timeout=90) == 0
        finally:
            sleeper.kill()
    assert answers(place)
